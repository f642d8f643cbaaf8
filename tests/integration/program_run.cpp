// SPDX-License-Identifier: Apache-2.0
#include "program_run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cohort/launch/process_tree.h"

namespace cohort::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kDeadline{120};

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

[[noreturn]] void become(const std::vector<std::string>& args, int out, int err) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGHUP, SIG_DFL);  // ignored where the tests run under nohup
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  std::vector<char*> raw;
  for (const std::string& arg : args) raw.push_back(const_cast<char*>(arg.c_str()));
  raw.push_back(nullptr);
  ::execvp(raw[0], raw.data());
  ::_exit(127);
}

// Appends what is there; false at the end.
bool drain(int& fd, std::string& to) {
  std::array<char, 65536> buffer;
  const ssize_t n = ::read(fd, buffer.data(), buffer.size());
  if (n > 0) to.append(buffer.data(), n);
  if (n > 0 || (n < 0 && errno != EIO)) return true;
  ::close(fd);
  fd = -1;
  return false;
}

}  // namespace

Program::Program(const std::vector<std::string>& args,
                 const std::vector<std::string>& variables, Streams streams)
    : mark_("COHORT_TEST_MARK=" + process::random_hex(8)),
      deadline_(Clock::now() + kDeadline) {
  const bool terminal = streams == Streams::kTerminal;
  int out[2], err[2];
  const int opened = terminal ? ::openpty(&out[0], &out[1], nullptr, nullptr, nullptr)
                              : ::pipe2(out, O_CLOEXEC);
  if (opened != 0 || ::pipe2(err, O_CLOEXEC) != 0) std::abort();
  ::fcntl(out[0], F_SETFD, FD_CLOEXEC);
  pid_ = ::fork();
  if (pid_ == 0) {
    if (terminal) {
      ::setsid();
      ::ioctl(out[1], TIOCSCTTY, 0);
      ::dup2(out[1], STDIN_FILENO);
      ::dup2(out[1], err[1]);
    }
    ::putenv(const_cast<char*>(mark_.c_str()));
    for (const std::string& v : variables) ::putenv(const_cast<char*>(v.c_str()));
    become(args, out[1], err[1]);
  }
  ::close(out[1]);
  ::close(err[1]);
  out_fd_ = out[0];
  err_fd_ = err[0];
}

Program::~Program() {
  if (!ended_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  for (int fd : {out_fd_, err_fd_}) {
    if (fd >= 0) ::close(fd);
  }
}

void Program::signal(int signal) const { ::kill(pid_, signal); }

void Program::type(const std::string& keys) {
  if (::write(out_fd_, keys.data(), keys.size()) < 0) std::abort();
}

void Program::hang_up() {
  ::close(out_fd_);
  out_fd_ = -1;
}

bool Program::read_some(int timeout_ms) {
  pollfd polls[2] = {{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}};
  ::poll(polls, 2, timeout_ms);
  if (polls[0].revents) drain(out_fd_, out_);
  if (polls[1].revents) drain(err_fd_, err_);
  return out_fd_ >= 0 || err_fd_ >= 0;
}

bool Program::wait_until(const std::function<bool()>& condition) {
  while (!condition()) {
    if (Clock::now() > deadline_ || !read_some(10)) return condition();
  }
  return true;
}

bool Program::wait_for_output(const std::string& part) {
  return wait_until([&] { return out_.find(part) != std::string::npos; });
}

int Program::wait() {
  while (!ended_ && Clock::now() < deadline_) {
    read_some(10);
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) continue;
    ended_ = true;
    code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  while (ended_ && Clock::now() < deadline_ && read_some(10)) continue;
  return ended_ ? code_ : -1;
}

std::set<pid_t> Program::processes() const {
  std::set<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || slurp(entry.path() / "environ").find(mark_) == std::string::npos) {
      continue;
    }
    const std::string stat = slurp(entry.path() / "stat");
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos || stat[name_end + 2] == 'Z') continue;
    found.insert(pid);
  }
  return found;
}

bool Program::all_gone() const {
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  while (!processes().empty()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

std::string launch_tool() {
  const char* path = std::getenv("COHORT_LAUNCH_TOOL");
  return path ? path
              : std::filesystem::read_symlink("/proc/self/exe").parent_path() /
                    "launch_tool";
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++n;
  return n;
}

Args shell(const Args& flags, const std::string& script) {
  Args args{launch_tool()};
  args.insert(args.end(), flags.begin(), flags.end());
  args.insert(args.end(), {"--", "sh", "-c", script});
  return args;
}

Args body(const Args& flags, const Args& act) {
  Args args{launch_tool()};
  args.insert(args.end(), flags.begin(), flags.end());
  args.push_back("--body");
  args.insert(args.end(), act.begin(), act.end());
  return args;
}

}  // namespace cohort::test
