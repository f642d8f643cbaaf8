// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/disk.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

namespace cohort {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_disk(const char* what, const fs::path& path, int code) {
  const auto message = text("[checkpoint.disk] ", what, " ", path.string(), ": ",
                            std::generic_category().message(code));
  if (code == ENOSPC || code == EDQUOT) throw DiskFull(message);
  throw CheckpointError(message);
}

class RealFile : public Disk::File {
 public:
  explicit RealFile(const fs::path& path)
      : path_(path),
        fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
    if (fd_ < 0) fail_disk("cannot make", path_, errno);
  }
  ~RealFile() override {
    if (fd_ >= 0) ::close(fd_);
  }

  // The disk starts on each block while the next is copied: without that it would idle
  // until the flush. Where it cannot, nothing is lost.
  void write(std::string_view bytes) override {
    while (!bytes.empty()) {
      const auto block = bytes.substr(0, kBlock);
      const ssize_t written = ::write(fd_, block.data(), block.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_disk("cannot write", path_, errno);
      if (written == static_cast<ssize_t>(kBlock))
        ::sync_file_range(fd_, at_, written, SYNC_FILE_RANGE_WRITE);
      at_ += written;
      bytes.remove_prefix(static_cast<size_t>(written));
    }
  }

  void finish() override {
    if (::fsync(fd_) != 0) fail_disk("cannot sync", path_, errno);
    // Some file systems report a failed write only here.
    if (::close(std::exchange(fd_, -1)) != 0) fail_disk("cannot write", path_, errno);
  }

 private:
  static constexpr size_t kBlock = 8 << 20;

  fs::path path_;
  int fd_;
  off_t at_ = 0;
};

class RealDisk : public Disk {
 public:
  std::unique_ptr<File> create(const Path& path) override {
    return std::make_unique<RealFile>(path);
  }

  void make_folder(const Path& path) override {
    std::error_code code;
    fs::create_directories(path, code);
    if (code) fail_disk("cannot make the folder", path, code.value());
  }

  void link(const Path& from, const Path& to) override {
    if (::link(from.c_str(), to.c_str()) != 0 && errno != EEXIST)
      fail_disk("cannot link", to, errno);
  }

  void rename(const Path& from, const Path& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0)
      fail_disk("cannot rename to", to, errno);
  }

  bool exchange(const Path& a, const Path& b) override {
    if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0)
      return true;
    if (errno == EINVAL || errno == ENOSYS) return false;
    fail_disk("cannot exchange", b, errno);
  }

  // Some network file systems cannot sync a folder (EINVAL); nothing more can be done.
  void sync_folder(const Path& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) fail_disk("cannot open the folder", path, errno);
    const int code = ::fsync(fd) == 0 ? 0 : errno;
    ::close(fd);
    if (code != 0 && code != EINVAL) fail_disk("cannot sync the folder", path, code);
  }

  void remove(const Path& path) override {
    std::error_code code;
    fs::remove_all(path, code);
    if (code) fail_disk("cannot remove", path, code.value());
  }

  int64_t free_bytes(const Path& path) override {
    struct statvfs info {};
    if (::statvfs(path.c_str(), &info) != 0)
      fail_disk("cannot ask for the space of", path, errno);
    // File systems without a limit say 0 blocks in all.
    if (info.f_blocks == 0) return std::numeric_limits<int64_t>::max();
    return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
  }
};

}  // namespace

std::unique_ptr<Disk> real_disk() { return std::make_unique<RealDisk>(); }

}  // namespace cohort
