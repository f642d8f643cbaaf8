// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/gzip.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/memory.h"

namespace cohort {
namespace {

// Bytes that deflate can make of one: a code of one bit for 258 of them.
constexpr int64_t kBestRatio = 1032;

[[noreturn]] void fail_gzip(const std::string& path, const std::string& what) {
  throw DataError(text("[data.gzip] ", path, ": ", what));
}

[[noreturn]] void fail_errno(const std::string& path, const char* doing) {
  fail_gzip(path, text(doing, ": ", std::strerror(errno)));
}

Tensor allocate_bytes(int64_t size);

// The same, if memory can hold it.
Tensor allocate_for(const std::string& path, int64_t size) {
  require_memory(size, ErrorKind::kData, text("[data.gzip] ", path));
  return allocate_bytes(size);
}

// Fresh memory whose pages, where the system can, are large: touching 47 MB for the
// first time in small ones takes a tenth of the time of unpacking into them.
Tensor allocate_bytes(int64_t size) {
  auto bytes = at::empty({size}, at::kByte);
  constexpr uintptr_t kLargePage = 1 << 21;
  const auto begin = reinterpret_cast<uintptr_t>(bytes.const_data_ptr<uint8_t>());
  const uintptr_t first = (begin + kLargePage - 1) & ~(kLargePage - 1);
  const uintptr_t last = (begin + size) & ~(kLargePage - 1);
  if (first < last) {  // only advice: a system that cannot goes on as before
    (void)::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  }
  return bytes;
}

class File {
 public:
  explicit File(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    // O_NONBLOCK: a pipe of that name would be waited for, and is refused below.
    if (fd_ < 0) fail_errno(path_, "cannot open");
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int64_t size() const {
    struct stat info {};
    if (::fstat(fd_, &info) != 0) fail_errno(path_, "cannot stat");
    if (!S_ISREG(info.st_mode)) fail_gzip(path_, "is not a regular file");
    return info.st_size;
  }

  // The first `count` bytes.
  Tensor read(int64_t count) const {
    auto bytes = allocate_for(path_, count);
    auto* data = bytes.mutable_data_ptr<uint8_t>();
    int64_t done = 0;
    while (done < count) {
      const ssize_t n = ::pread(fd_, data + done, count - done, done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_errno(path_, text("cannot read at byte ", done).c_str());
      if (n == 0) {
        fail_gzip(path_, text("ends at byte ", done, " while it is read; expected ",
                              count, " bytes"));
      }
      done += n;
    }
    return bytes;
  }

 private:
  std::string path_;
  int fd_;
};

// libdeflate says only "bad"; zlib, three times slower, says where and what. Never
// returns.
[[noreturn]] void diagnose(const std::string& path, const uint8_t* member,
                           int64_t begin, int64_t size) {
  z_stream stream{};
  constexpr int kGzipOnly = 15 + 16;
  if (inflateInit2(&stream, kGzipOnly) != Z_OK) throw std::bad_alloc();
  std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, inflateEnd);
  std::vector<uint8_t> sink(1 << 16);
  constexpr int64_t kMaxInput = 1 << 30;  // avail_in has 32 bits
  int64_t given = 0;
  int result = Z_OK;
  while (result == Z_OK || result == Z_BUF_ERROR) {
    if (stream.avail_in == 0) {
      if (given == size) break;
      stream.next_in = const_cast<uint8_t*>(member + given);
      stream.avail_in = static_cast<uInt>(std::min(size - given, kMaxInput));
      given += stream.avail_in;
    }
    stream.next_out = sink.data();
    stream.avail_out = static_cast<uInt>(sink.size());
    result = inflate(&stream, Z_NO_FLUSH);
  }
  const auto at = begin + static_cast<int64_t>(stream.total_in);
  if (result == Z_DATA_ERROR || result == Z_NEED_DICT) {
    fail_gzip(path, text("altered: gzip data is wrong at byte ", at, " of ",
                         begin + size, ": ", stream.msg ? stream.msg : "unknown", "; ",
                         stream.total_out, " bytes were unpacked before it"));
  }
  fail_gzip(path, text("truncated: gzip data ends at byte ", begin + size, ", after ",
                       stream.total_out, " unpacked bytes; expected more"));
}

// The first bytes of the unpacked data, as far as there are any.
std::string unpacked_head(const uint8_t* data, int64_t size) {
  z_stream stream{};
  constexpr int kGzipOnly = 15 + 16;
  if (inflateInit2(&stream, kGzipOnly) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, inflateEnd);
  std::string head(kHeadBytes, '\0');
  stream.next_out = reinterpret_cast<uint8_t*>(head.data());
  stream.avail_out = static_cast<uInt>(head.size());
  int64_t given = 0;
  while (stream.avail_out > 0) {
    if (stream.avail_in == 0) {
      if (given == size) break;
      stream.next_in = const_cast<uint8_t*>(data + given);
      stream.avail_in = static_cast<uInt>(std::min<int64_t>(size - given, 1 << 20));
      given += stream.avail_in;
    }
    const int result = inflate(&stream, Z_NO_FLUSH);
    if (result == Z_STREAM_END)
      inflateReset(&stream);  // several members
    else if (result != Z_OK)
      break;
  }
  return head.substr(0, head.size() - stream.avail_out);
}

// Unpacks into memory of the size that is wanted: what would be more is not unpacked.
// A byte more of room tells a file that has too many bytes from one that has enough.
FileBytes gunzip(const std::string& path, const Tensor& packed, int64_t wanted) {
  const auto* in = packed.const_data_ptr<uint8_t>();
  const int64_t size = packed.numel();
  std::unique_ptr<libdeflate_decompressor, void (*)(libdeflate_decompressor*)> inflater(
      libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
  if (!inflater) throw std::bad_alloc();
  auto out = allocate_for(path, std::min(wanted, size * kBestRatio) + 1);
  int64_t read = 0, written = 0;
  while (read < size) {
    size_t used = 0, made = 0;
    const auto result = libdeflate_gzip_decompress_ex(
        inflater.get(), in + read, size - read,
        out.mutable_data_ptr<uint8_t>() + written, out.numel() - written, &used, &made);
    if (result == LIBDEFLATE_INSUFFICIENT_SPACE)
      return {.bytes = out, .packed = true, .size = wanted + 1, .longer = true};
    if (result != LIBDEFLATE_SUCCESS) diagnose(path, in + read, read, size - read);
    read += static_cast<int64_t>(used);
    written += static_cast<int64_t>(made);
  }
  return {.bytes = out.narrow(0, 0, written),
          .packed = true,
          .size = written,
          .longer = written > wanted};
}

}  // namespace

FileBytes read_bytes(const std::string& path,
                     const std::function<int64_t(std::string_view head)>& wanted) {
  const File file(path);
  const int64_t size = file.size();
  const Tensor start = file.read(std::min(size, kHeadBytes));
  const auto* data = start.const_data_ptr<uint8_t>();
  if (size >= 2 && data[0] == 0x1f && data[1] == 0x8b) {
    const Tensor packed = file.read(size);
    return gunzip(path, packed,
                  wanted(unpacked_head(packed.const_data_ptr<uint8_t>(), size)));
  }
  const int64_t most =
      wanted({reinterpret_cast<const char*>(data), static_cast<size_t>(start.numel())});
  if (size > most) return {.bytes = start, .size = size, .longer = true};
  return {.bytes = file.read(size), .size = size};
}

}  // namespace cohort
