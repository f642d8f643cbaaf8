// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "cohort/core/atomic_file.h"
#include "cohort/core/memory.h"
#include "cohort/core/unique_fd.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(ErrorKind kind, const char* what, const fs::path& path,
                       int code) {
  throw_error(kind, text("[core.file] ", what, " ", path.string(), ": ",
                         std::generic_category().message(code)));
}

[[noreturn]] void fail_long(ErrorKind kind, const fs::path& path, int64_t bytes,
                            int64_t most) {
  throw_error(kind, text("[core.file] cannot read ", path.string(), ": ", bytes,
                         " bytes; legal: at most ", most));
}

// Removes a temporary file unless it was renamed.
struct Temporary {
  fs::path path;
  bool keep = false;
  ~Temporary() {
    if (!keep && !path.empty()) ::unlink(path.c_str());
  }
};

fs::path temporary_name(fs::path path, int n) {
  return path += text(".tmp.", ::getpid(), ".", n);
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// A new file beside `path`. A leftover of a dead process with our pid is stepped over.
UniqueFd create_beside(const fs::path& path, fs::path& name, ErrorKind kind) {
  for (int n = 0; n < 1000; ++n) {
    name = temporary_name(path, n);
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return UniqueFd(fd);
    if (errno != EEXIST) break;
  }
  fail(kind, "cannot write", path, errno);
}

void write_all(int fd, std::string_view bytes, const fs::path& path, ErrorKind kind) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(kind, "cannot write", path, errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

// The file that `path` means: behind a link, whose name stays a link. Devices, pipes
// and sockets are never replaced: /dev/null would become a file for everyone.
fs::path file_behind(const fs::path& path, ErrorKind kind) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    fail(kind, "cannot replace what is no regular file:", path,
         S_ISDIR(info.st_mode) ? EISDIR : EINVAL);
  }
  fs::path target = path;
  std::error_code code;
  for (int links = 0; links < 40 && fs::is_symlink(target, code); ++links) {
    target = folder_of(target) / fs::read_symlink(target, code);
  }
  return target;
}

// A file without a name, of which nothing stays when the process is killed; -1 where
// the file system has none.
UniqueFd create_nameless(const fs::path& path) {
  const int flags = O_WRONLY | O_TMPFILE | O_CLOEXEC;
  return UniqueFd(::open(folder_of(path).c_str(), flags, 0666));
}

// Gives it a name: its own if that is free (true), else one beside it.
bool link_at(const UniqueFd& fd, const fs::path& path, fs::path& name, ErrorKind kind) {
  const std::string self = text("/proc/self/fd/", fd.get());
  for (int n = -1; n < 1000; ++n) {
    name = n < 0 ? path : temporary_name(path, n);
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) ==
        0) {
      return n < 0;
    }
    if (errno != EEXIST) break;
  }
  fail(kind, "cannot write", path, errno);
}

// A rename is on disk when its folder is. Some network file systems cannot sync a
// folder (EINVAL); nothing more can be done there.
void sync_folder_of(const fs::path& path, ErrorKind kind) {
  const UniqueFd fd(
      ::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0 || (::fsync(fd.get()) != 0 && errno != EINVAL)) {
    fail(kind, "cannot sync the folder of", path, errno);
  }
}

}  // namespace

std::string read_file(const fs::path& path, ErrorKind kind, int64_t most) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) fail(kind, "cannot read", path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) fail(kind, "cannot read", path, errno);
  if (S_ISDIR(info.st_mode)) fail(kind, "cannot read", path, EISDIR);
  const auto make_room = [&](int64_t size) {
    require_memory(size, kind, text("[core.file] cannot read ", path.string()));
    return static_cast<size_t>(size);
  };
  if (info.st_size > most) fail_long(kind, path, info.st_size, most);

  // The size is a hint: files of /proc say 0. One byte more finds the end at once.
  std::string bytes(make_room(info.st_size + 1), '\0');
  size_t used = 0;
  while (true) {
    if (static_cast<int64_t>(used) > most) fail_long(kind, path, used, most);
    if (used == bytes.size()) bytes.resize(make_room(2 * bytes.size() + 4096));
    const ssize_t got = ::read(fd.get(), bytes.data() + used, bytes.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(kind, "cannot read", path, errno);
    if (got == 0) break;
    used += static_cast<size_t>(got);
  }
  bytes.resize(used);
  return bytes;
}

void write_file_atomically(const fs::path& path, std::string_view bytes,
                           ErrorKind kind) {
  write_file_atomically(path, std::span(&bytes, 1), kind);
}

void write_file_atomically(const fs::path& path,
                           std::span<const std::string_view> pieces, ErrorKind kind) {
  AtomicFile file(path, kind);
  for (const auto piece : pieces) file.write(piece);
  file.finish();
}

struct AtomicFile::Open {
  fs::path path;
  ErrorKind kind;
  Temporary temporary = {};
  UniqueFd fd;
  bool nameless = false;
};

AtomicFile::AtomicFile(const fs::path& path, ErrorKind kind)
    : open_(new Open{.path = file_behind(path, kind), .kind = kind}) {
  open_->fd = create_nameless(open_->path);
  open_->nameless = open_->fd.get() >= 0;
  if (!open_->nameless)
    open_->fd = create_beside(open_->path, open_->temporary.path, kind);
}

AtomicFile::~AtomicFile() = default;

void AtomicFile::write(std::string_view bytes) {
  write_all(open_->fd.get(), bytes, open_->path, open_->kind);
}

void AtomicFile::finish() {
  auto& [path, kind, temporary, fd, nameless] = *open_;
  if (::fsync(fd.get()) != 0) fail(kind, "cannot sync", path, errno);
  const bool in_place = nameless && link_at(fd, path, temporary.path, kind);
  temporary.keep = in_place;
  // Some file systems report a failed write only here.
  if (::close(fd.release()) != 0) fail(kind, "cannot write", path, errno);
  if (!in_place && ::rename(temporary.path.c_str(), path.c_str()) != 0) {
    fail(kind, "cannot write", path, errno);
  }
  temporary.keep = true;
  sync_folder_of(path, kind);
}

std::vector<fs::path> missing_folders(const fs::path& path) {
  std::vector<fs::path> missing;
  std::error_code ignored;
  fs::path at = path.lexically_normal();
  if (!at.has_filename()) at = at.parent_path();  // behind a last slash
  for (; !at.empty() && !fs::exists(at, ignored); at = at.parent_path())
    missing.insert(missing.begin(), at);
  return missing;
}

void make_folder(const fs::path& path, ErrorKind kind) {
  std::error_code code;
  const auto missing = missing_folders(path);
  fs::create_directories(path, code);
  if (code) fail(kind, "cannot make the folder", path, code.value());
  for (const auto& made : missing) sync_folder_of(made, kind);
}

}  // namespace cohort
