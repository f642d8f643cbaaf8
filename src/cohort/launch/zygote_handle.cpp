// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/zygote_handle.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "cohort/core/error.h"

namespace cohort::process {
namespace {

constexpr std::chrono::seconds kEndLimit{5};

}  // namespace

ZygoteHandle::ZygoteHandle(const ZygoteOptions& options) : spare_(children()) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    throw CommError(text("[launch.zygote] socketpair: ", strerror(errno)));
  }
  socket_.reset(pair[0]);
  UniqueFd other(pair[1]);
  ::fflush(nullptr);  // or children would print the same bytes again
  const pid_t agent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw CommError(text("[launch.zygote] fork: ", strerror(errno)));
  if (pid_ == 0) {
    socket_.reset();
    run_zygote(std::move(other), agent, options);
  }
}

ZygoteHandle::~ZygoteHandle() {
  if (alive_) {
    const Request quit{Request::kQuit, -1, 0};
    send_message(socket_.get(), &quit, sizeof quit);
    ::kill(pid_, SIGCONT);
    // The end of the stream says that it has ended everything below.
    pollfd end{socket_.get(), POLLIN, 0};
    const auto deadline = Clock::now() + kEndLimit;
    while (alive_ && Clock::now() < deadline) {
      ::poll(&end, 1, 100);
      while (next_report()) continue;
    }
  }
  if (!reaped_) ::kill(pid_, SIGKILL);
  end_children(spare_, kEndLimit);
}

bool ZygoteHandle::spawn(int index, const SpawnText& spawn, int in, int out, int err,
                         int link) {
  const Request request{Request::kSpawn, index, 0};
  const int fds[] = {in, out, err, link};
  return send(request, to_record(spawn), {fds, link >= 0 ? 4u : 3u});
}

bool ZygoteHandle::signal(int index, int signal) {
  return send({Request::kSignal, index, signal});
}

// While the zygote does not read, it may be waiting for us to do so.
bool ZygoteHandle::send(const Request& request, std::string_view text,
                        std::span<const int> fds) {
  while (alive_) {
    const int sent =
        try_send_message(socket_.get(), &request, sizeof request, text, fds);
    if (sent != 0) return sent > 0;
    receive();
    check();
    pollfd events{socket_.get(), POLLIN | POLLOUT, 0};
    ::poll(&events, 1, 100);
  }
  return false;
}

void ZygoteHandle::receive() {
  Report report;
  std::string text;
  std::vector<UniqueFd> fds;
  int got = 0;
  while (alive_ && (got = receive_message(socket_.get(), &report, sizeof report, text,
                                          fds)) > 0) {
    reports_.push_back(report);
  }
  if (got < 0) lost();
}

std::optional<Report> ZygoteHandle::next_report() {
  if (reports_.empty()) receive();
  if (reports_.empty()) return std::nullopt;
  const Report report = reports_.front();
  reports_.pop_front();
  return report;
}

void ZygoteHandle::check() {
  if (reaped_) return;
  siginfo_t info{};
  const int what = WSTOPPED | WNOHANG;
  if (::waitid(P_PID, pid_, &info, what) == 0 && info.si_pid == pid_) {
    ::kill(pid_, SIGCONT);  // it only waits, so nothing is gained by its rest
  }
  // That it died is seen at the end of the stream, behind its last reports.
}

// Its ranks die with it and come to us.
void ZygoteHandle::lost() {
  alive_ = false;
  ::kill(pid_, SIGKILL);
  const auto deadline = Clock::now() + kEndLimit;
  while (!reaped_ && Clock::now() < deadline) {
    reaped_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
    if (!reaped_) ::poll(nullptr, 0, 1);
  }
  end_children(spare_, kEndLimit);
}

}  // namespace cohort::process
