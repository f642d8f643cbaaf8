// SPDX-License-Identifier: Apache-2.0
#include "cli/child_answer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>

#include "cohort/core/error.h"
#include "cohort/core/unique_fd.h"

namespace cohort::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kThrew = 1;

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

// Never returns: nothing of the parent may run twice.
[[noreturn]] void answer(int fd, const std::function<std::string()>& body) {
  int code = 0;
  std::string said;
  try {
    said = body();
  } catch (const std::exception& error) {
    said = error.what();
    said.resize(std::min(said.size(), said.find('\n')));
    code = kThrew;
  }
  write_all(fd, said);
  ::_exit(code);
}

// All that is written until the other end closes; false: the deadline came first.
bool read_until(int fd, SteadyClock::time_point deadline, std::string& out) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - SteadyClock::now());
    pollfd ready{fd, POLLIN, 0};
    const int found =
        left.count() > 0 ? ::poll(&ready, 1, static_cast<int>(left.count())) : 0;
    if (found < 0 && errno == EINTR) continue;
    if (found <= 0) return false;
    char bytes[512];
    const ssize_t got = ::read(fd, bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    out.append(bytes, static_cast<size_t>(got));
  }
}

ChildAnswer how_it_ended(int status, std::string said) {
  if (WIFSIGNALED(status))
    return {false, text("ended by signal ", WTERMSIG(status), " (",
                        ::strsignal(WTERMSIG(status)), ")")};
  return {WEXITSTATUS(status) == 0, std::move(said)};
}

}  // namespace

ChildAnswer ask_child(const std::function<std::string()>& body,
                      std::chrono::milliseconds deadline) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return {false, text("no pipe: ", std::strerror(errno))};
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) answer(writer.get(), body);
  writer.reset();
  if (child < 0) return {false, text("no process: ", std::strerror(errno))};
  std::string said;
  const bool ended = read_until(reader.get(), SteadyClock::now() + deadline, said);
  if (!ended) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) return {false, text("no answer after ", deadline.count(), " ms")};
  return how_it_ended(status, std::move(said));
}

}  // namespace cohort::cli
