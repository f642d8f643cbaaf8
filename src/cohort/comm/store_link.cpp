// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/store_link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

namespace cohort {
namespace {

constexpr size_t kMostFrame = 1 << 20;   // bytes; the largest is the list of nodes
constexpr size_t kMostUnsent = 4 << 20;  // for one who does not read
constexpr size_t kMostFrames = 64;       // asked at once; our clients ask one by one

template <typename Number>
void append_number(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// Takes numbers and the rest from the front of a frame.
class FrameReader {
 public:
  explicit FrameReader(const std::string& frame) : frame_(frame) {}

  template <typename Number>
  Number number() {
    Number value{};
    if (!has(sizeof value)) return value;
    std::memcpy(&value, frame_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string bytes(size_t size) {
    if (!has(size)) return {};
    at_ += size;
    return frame_.substr(at_ - size, size);
  }
  std::string rest() { return bytes(frame_.size() - at_); }
  bool whole() const { return whole_; }

 private:
  bool has(size_t size) { return whole_ = whole_ && frame_.size() - at_ >= size; }

  const std::string& frame_;
  size_t at_ = 0;
  bool whole_ = true;
};

}  // namespace

std::string encode(const StoreRequest& request) {
  std::string frame;
  append_number(frame, static_cast<uint8_t>(request.kind));
  append_number(frame, request.number);
  append_number(frame, static_cast<uint32_t>(request.key.size()));
  return frame + request.key + request.value;
}

std::string encode(const StoreAnswer& answer) {
  std::string frame;
  append_number(frame, answer.number);
  return frame + answer.value;
}

std::optional<StoreRequest> decode_request(const std::string& frame) {
  FrameReader in(frame);
  StoreRequest request;
  const auto kind = in.number<uint8_t>();
  request.number = in.number<int64_t>();
  request.key = in.bytes(in.number<uint32_t>());
  request.value = in.rest();
  if (!in.whole() || kind < StoreRequest::kSet || kind > StoreRequest::kSetAtEnd) {
    return std::nullopt;
  }
  request.kind = static_cast<StoreRequest::Kind>(kind);
  return request;
}

std::optional<StoreAnswer> decode_answer(const std::string& frame) {
  FrameReader in(frame);
  StoreAnswer answer;
  answer.number = in.number<int64_t>();
  answer.value = in.rest();
  if (!in.whole()) return std::nullopt;
  return answer;
}

StoreLink::StoreLink(UniqueFd socket, std::unique_ptr<TlsSession> session)
    : socket_(std::move(socket)), session_(std::move(session)) {
  ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
  if (session_) out_ = session_->take_wire();
}

short StoreLink::events() const {
  return static_cast<short>(POLLIN | (out_.empty() ? 0 : POLLOUT));
}

bool StoreLink::pump() {
  const bool alive = read();
  return write() && alive;  // also what says why it is over
}

bool StoreLink::read() {
  std::array<char, 16'384> buffer;
  while (frames_.size() < kMostFrames) {
    const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (got == 0) return false;
    const std::string_view bytes(buffer.data(), static_cast<size_t>(got));
    if (session_) {
      const bool sound = session_->receive(bytes);
      out_ += session_->take_wire();
      in_ += session_->take_plain();
      if (!sound) return false;
    } else {
      in_ += bytes;
    }
    if (!cut_frames()) return false;
    // A stranger who talks on and on must not keep the others waiting.
    if (!proved()) return true;
  }
  return true;
}

bool StoreLink::write() {
  while (!out_.empty()) {
    const ssize_t sent = ::send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      const bool later = errno == EAGAIN || errno == EWOULDBLOCK;
      return later && out_.size() <= kMostUnsent;
    }
    out_.erase(0, static_cast<size_t>(sent));
  }
  return true;
}

bool StoreLink::cut_frames() {
  uint32_t size = 0;
  while (in_.size() >= sizeof size) {
    std::memcpy(&size, in_.data(), sizeof size);
    if (size > kMostFrame) return false;
    if (in_.size() < sizeof size + size) return true;
    frames_.push_back(in_.substr(sizeof size, size));
    in_.erase(0, sizeof size + size);
  }
  return true;
}

std::optional<std::string> StoreLink::next_frame() {
  if (frames_.empty()) return std::nullopt;
  std::string frame = std::move(frames_.front());
  frames_.pop_front();
  return frame;
}

void StoreLink::send(const std::string& frame) {
  std::string bytes;
  append_number(bytes, static_cast<uint32_t>(frame.size()));
  bytes += frame;
  if (session_) {
    session_->send(bytes);
    out_ += session_->take_wire();
  } else {
    out_ += bytes;
  }
}

}  // namespace cohort
