// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/folder_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>
#include <thread>

#include "cohort/core/error.h"
#include "cohort/core/process.h"

namespace cohort {
namespace {

constexpr std::chrono::milliseconds kLook{20};  // between two looks at a lock

struct Holder {
  pid_t pid = 0;
  std::string host;
};

// If the lock was taken just now, this may still be the holder before.
Holder read_holder(const std::string& path) {
  Holder holder;
  std::ifstream(path) >> holder.pid >> holder.host;
  return holder;
}

// One that nobody has waited for yet is dead all the same.
bool is_alive(const Holder& holder) {
  if (holder.pid <= 0) return false;
  if (holder.host != host_name()) return true;  // who knows
  if (::kill(holder.pid, 0) != 0 && errno == ESRCH) return false;
  const auto stat = process_stat(holder.pid);
  return !stat || stat->state != 'Z';
}

[[noreturn]] void refuse(const std::string& folder, const Holder& holder) {
  throw ConfigError(text("[core.lock] ", folder, " is written to by the run of pid ",
                         holder.pid, " on ", holder.host,
                         is_alive(holder) ? "" : ", whose ranks have not ended",
                         "; legal: another folder, or this one after that run"));
}

// False where there are no locks.
bool acquire(int fd, const std::string& folder, const std::string& path,
             std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return false;
    const Holder holder = read_holder(path);
    if (is_alive(holder) || std::chrono::steady_clock::now() >= deadline)
      refuse(folder, holder);
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, std::chrono::milliseconds patience) {
  const std::string path = folder + "/run.lock";
  file_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file_)
    throw ConfigError(text("[core.lock] ", path, ": cannot be written: ",
                           std::generic_category().message(errno)));
  if (!acquire(file_.get(), folder, path, patience)) return;
  const std::string holder = text(::getpid(), " ", host_name(), "\n");
  // On a full disk the next one does not learn the pid: the lock holds without it.
  [[maybe_unused]] const bool told =
      ::ftruncate(file_.get(), 0) == 0 &&
      ::pwrite(file_.get(), holder.data(), holder.size(), 0) > 0;
}

}  // namespace cohort
