// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>

#include "cohort/core/error.h"

namespace cohort::process {
namespace {

constexpr size_t kLongestLine = 64 * 1024;
constexpr size_t kLongestRemembered = 2'000;

bool blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// Not the stack that LibTorch shows behind an error.
bool says_something(std::string_view line) {
  if (blank(line)) return false;
  line.remove_prefix(line.find_first_not_of(" \t"));
  return !line.starts_with("frame #") && !line.starts_with("Exception raised from ");
}

void write_log(int fd, std::string_view data) {
  while (fd >= 0 && !data.empty()) {
    const ssize_t n = ::write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // a full disk must not end the run
    data.remove_prefix(n);
  }
}

}  // namespace

AgentStream::AgentStream(int fd) : fd_(fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    closed_ = true;
    return;
  }
  socket_ = S_ISSOCK(info.st_mode);
  file_ = S_ISREG(info.st_mode);
  if (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)) {
    own_.reset(::open(text("/proc/self/fd/", fd).c_str(),
                      O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  }
}

ssize_t AgentStream::write_some(const char* data, size_t size) {
  if (own_) return ::write(own_.get(), data, size);
  if (socket_) return ::send(fd_, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (file_) return ::write(fd_, data, size);
  // A blocking stream that could not be opened again: ask first, write little.
  pollfd ready{fd_, POLLOUT, 0};
  if (::poll(&ready, 1, 0) == 0) {
    errno = EAGAIN;
    return -1;
  }
  return ::write(fd_, data, std::min<size_t>(size, 512));
}

void AgentStream::write(std::string_view data, const void* writer) {
  if (closed_ || data.empty()) return;
  if (line_open_ && writer != last_writer_) queue_ += '\n';
  last_writer_ = writer;
  line_open_ = data.back() != '\n';
  queue_ += data;
  flush();
}

void AgentStream::flush() {
  while (!closed_ && !empty()) {
    const ssize_t n = write_some(queue_.data() + sent_, queue_.size() - sent_);
    if (n >= 0) {
      sent_ += n;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      closed_ = true;  // ranks do not suffer for it
      if (errno != EPIPE) error_ = errno;
    }
  }
  if (closed_ || empty()) {
    queue_.clear();
    sent_ = 0;
  } else if (sent_ > (1u << 20)) {
    queue_.erase(0, sent_);
    sent_ = 0;
  }
}

std::string_view visible(std::string_view line) {
  while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const size_t at = line.rfind('\r');
  return at == std::string_view::npos ? line : line.substr(at + 1);
}

RankStream::RankStream(UniqueFd pipe, AgentStream& stream, Forward forward,
                       std::string prefix, int log_fd)
    : pipe_(std::move(pipe)),
      stream_(stream),
      forward_(forward),
      prefix_(std::move(prefix)),
      log_fd_(log_fd) {}

void RankStream::show_as(Forward forward, std::string prefix, int log_fd) {
  flush_partial();
  forward_ = forward;
  prefix_ = std::move(prefix);
  log_fd_ = log_fd;
}

void RankStream::pump() {
  std::array<char, 65536> buffer;
  // Bounded, so that one loud rank does not keep the agent from the others.
  for (int i = 0; i < 16 && ready_for_more(); ++i) {
    const ssize_t n = ::read(pipe_.get(), buffer.data(), buffer.size());
    if (n > 0) {
      take({buffer.data(), static_cast<size_t>(n)});
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      close();
    } else if (errno == EAGAIN) {
      return;
    }
  }
}

void RankStream::close() {
  flush_partial();
  pipe_.reset();
}

void RankStream::flush_partial() {
  if (!partial_.empty()) forward_lines(partial_);
  partial_.clear();
}

void RankStream::take(std::string_view data) {
  write_log(log_fd_, data);
  remember(data);
  if (forward_ == Forward::kAsItComes) {
    stream_.write(data, this);
    return;
  }
  const size_t end = data.rfind('\n');
  if (end != std::string_view::npos) {
    partial_ += data.substr(0, end + 1);
    flush_partial();
    data.remove_prefix(end + 1);
  }
  partial_ += data;
  if (partial_.size() > kLongestLine) flush_partial();
}

void RankStream::forward_lines(std::string_view lines) {
  if (forward_ == Forward::kWholeLines) {
    stream_.write(lines, this);
    return;
  }
  std::string prefixed;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    prefixed.append(prefix_).append(visible(lines.substr(0, end))).append("\n");
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  stream_.write(prefixed, this);
}

void RankStream::remember(std::string_view data) {
  while (!data.empty()) {
    const size_t end = data.find_first_of("\r\n");
    const std::string_view piece = data.substr(0, end);
    if (current_.size() < kLongestRemembered) {
      current_ += piece.substr(0, kLongestRemembered - current_.size());
    }
    if (end == std::string_view::npos) return;
    if (says_something(current_)) last_ = current_;
    current_.clear();
    data.remove_prefix(end + 1);
  }
}

std::string RankStream::last_line() const {
  const std::string& line = says_something(current_) ? current_ : last_;
  const size_t begin = line.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : line.substr(begin);
}

}  // namespace cohort::process
