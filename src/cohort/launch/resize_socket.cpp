// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/resize_socket.h"

#include <sys/socket.h>

#include <optional>

#include "cohort/core/abstract_address.h"
#include "cohort/core/error.h"
#include "cohort/core/message.h"
#include "cohort/launch/process_tree.h"

namespace cohort::process {
namespace {

constexpr uint32_t kControlVersion =
    0xC0490001;  // a mark, and the version in its last byte
constexpr size_t kMostGuests = 16;
constexpr std::chrono::seconds kAnswerLimit{30};

struct ControlRequest {
  uint32_t version = kControlVersion;
  int32_t ranks = 0;
};

struct Answer {
  uint32_t version = kControlVersion;
  int32_t refused = 0;
};

AbstractAddress address_of(pid_t pid) {
  return AbstractAddress(text("cohort-agent-", pid));
}

UniqueFd make_socket(int flags) {
  return UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
}

// True when the guest is done with.
bool answer(int guest, const std::function<std::string(int ranks)>& resize) {
  ControlRequest request;
  std::string line;
  std::vector<UniqueFd> fds;
  const int got = receive_message(guest, &request, sizeof request, line, fds);
  if (got == 0) return false;
  if (got < 0 || request.version != kControlVersion) return true;
  Answer answer;
  try {
    line = resize(request.ranks);
  } catch (const Error& error) {
    answer.refused = 1;
    line = error.what();
  }
  try_send_message(guest, &answer, sizeof answer, line);
  return true;
}

}  // namespace

ResizeServer::ResizeServer() : socket_(make_socket(SOCK_NONBLOCK)) {
  const AbstractAddress address = address_of(::getpid());
  if (!socket_ || ::bind(socket_.get(), address.get(), address.size) != 0 ||
      ::listen(socket_.get(), 8) != 0) {
    socket_.reset();
  }
}

void ResizeServer::add_polls(std::vector<pollfd>& polls) const {
  if (socket_) polls.push_back({socket_.get(), POLLIN, 0});
  for (const UniqueFd& guest : guests_) polls.push_back({guest.get(), POLLIN, 0});
}

void ResizeServer::accept() {
  while (socket_) {
    UniqueFd guest(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!guest) return;
    const auto peer = peer_of(guest.get());
    if (!peer || (peer->uid != ::geteuid() && peer->uid != 0)) continue;
    if (guests_.size() == kMostGuests) guests_.erase(guests_.begin());
    guests_.push_back(std::move(guest));
  }
}

void ResizeServer::serve(const std::function<std::string(int ranks)>& resize) {
  accept();
  std::erase_if(guests_, [&](const UniqueFd& g) { return answer(g.get(), resize); });
}

std::string ask_resize(pid_t pid, int ranks) {
  if (ranks < 1) {
    throw ConfigError(text("[resize] ", ranks, " ranks; legal: 1 or more"));
  }
  const UniqueFd socket = make_socket(0);
  const AbstractAddress address = address_of(pid);
  const bool connected =
      socket && ::connect(socket.get(), address.get(), address.size) == 0;
  const auto peer = connected ? peer_of(socket.get()) : std::nullopt;
  if (!peer || peer->pid != pid) {
    throw ConfigError(text("[resize] no run has pid ", pid,
                           " here; legal: the pid of a running `cohort train`"));
  }
  const ControlRequest request{kControlVersion, ranks};
  send_message(socket.get(), &request, sizeof request);
  Answer answer;
  std::string line;
  std::vector<UniqueFd> fds;
  pollfd event{socket.get(), POLLIN, 0};
  const int limit_ms = std::chrono::milliseconds(kAnswerLimit).count();
  if (::poll(&event, 1, limit_ms) <= 0 ||
      receive_message(socket.get(), &answer, sizeof answer, line, fds) <= 0 ||
      answer.version != kControlVersion) {
    throw CommError(text("[resize] the run of pid ", pid,
                         " did not answer; legal: a run of this user"));
  }
  if (answer.refused) throw ConfigError(line);
  return line;
}

}  // namespace cohort::process
