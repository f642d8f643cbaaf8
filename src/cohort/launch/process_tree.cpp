// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/process_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>

#include <array>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/process.h"

namespace cohort::process {
namespace {

struct SignalName {
  int signal;
  const char* name;
};

constexpr SignalName kSignalNames[] = {
    {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"},
    {SIGILL, "SIGILL"},   {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"},
    {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},   {SIGKILL, "SIGKILL"},
    {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
    {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"},
    {SIGSTOP, "SIGSTOP"}, {SIGTSTP, "SIGTSTP"}, {SIGTTIN, "SIGTTIN"},
    {SIGTTOU, "SIGTTOU"}, {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"},
    {SIGSYS, "SIGSYS"},
};

std::string read_small_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string content;
  std::array<char, 4096> buffer;
  ssize_t n;
  while (fd && (n = ::read(fd.get(), buffer.data(), buffer.size())) > 0) {
    content.append(buffer.data(), n);
  }
  return content;
}

std::vector<int> numeric_entries(const char* folder) {
  std::vector<int> numbers;
  DIR* dir = ::opendir(folder);
  if (!dir) return numbers;
  while (const dirent* entry = ::readdir(dir)) {
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0]))) {
      numbers.push_back(std::atoi(entry->d_name));
    }
  }
  ::closedir(dir);
  return numbers;
}

}  // namespace

std::string signal_name(int signal) {
  for (const SignalName& entry : kSignalNames) {
    if (entry.signal == signal) return entry.name;
  }
  return text("signal ", signal);
}

std::string random_hex(int bytes) {
  std::vector<unsigned char> raw(bytes);
  size_t filled = 0;
  while (filled < raw.size()) {
    const ssize_t n = ::getrandom(raw.data() + filled, raw.size() - filled, 0);
    COHORT_CHECK(n > 0 || errno == EINTR, "getrandom: ", std::strerror(errno));
    if (n > 0) filled += n;
  }
  std::string hex;
  for (unsigned char byte : raw) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

int64_t wall_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

std::set<pid_t> children() {
  std::set<pid_t> found;
  // Not every kernel has the `children` file; then every process is asked.
  if (::access(text("/proc/self/task/", ::getpid(), "/children").c_str(), R_OK) == 0) {
    for (int thread : numeric_entries("/proc/self/task")) {
      const std::string list =
          read_small_file(text("/proc/self/task/", thread, "/children"));
      std::istringstream in(list);
      for (pid_t pid; in >> pid;) found.insert(pid);
    }
    return found;
  }
  for (int pid : numeric_entries("/proc")) {
    if (const auto stat = process_stat(pid); stat && stat->parent == ::getpid())
      found.insert(pid);
  }
  return found;
}

std::vector<pid_t> threads_of(pid_t pid) {
  return numeric_entries(text("/proc/", pid, "/task").c_str());
}

bool end_children(const std::set<pid_t>& spare, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  // The kernel's list may miss a child while others end: believe it when it was
  // empty twice.
  int empty = 0;
  while (empty < 2) {
    bool any = false;
    for (pid_t pid : children()) {
      if (spare.count(pid)) continue;
      any = true;
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, WNOHANG);
    }
    empty = any ? 0 : empty + 1;
    if (!any) continue;
    if (Clock::now() > deadline) return false;
    ::poll(nullptr, 0, 1);  // SIGKILL takes a moment to be carried out
  }
  return true;
}

}  // namespace cohort::process
