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

namespace cohort {
namespace {

[[noreturn]] void fail_gzip(const std::string& path, const std::string& what) {
  throw DataError(text("[data.gzip] ", path, ": ", what));
}

[[noreturn]] void fail_errno(const std::string& path, const char* doing) {
  fail_gzip(path, text(doing, ": ", std::strerror(errno)));
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

  Tensor read_all() const {
    struct stat info {};
    if (::fstat(fd_, &info) != 0) fail_errno(path_, "cannot stat");
    if (!S_ISREG(info.st_mode)) fail_gzip(path_, "is not a regular file");
    auto bytes = allocate_bytes(info.st_size);
    auto* data = bytes.mutable_data_ptr<uint8_t>();
    int64_t done = 0;
    while (done < info.st_size) {
      const ssize_t n = ::pread(fd_, data + done, info.st_size - done, done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_errno(path_, text("cannot read at byte ", done).c_str());
      if (n == 0) {
        fail_gzip(path_, text("ends at byte ", done, " while it is read; expected ",
                              info.st_size, " bytes"));
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

// The size of the last member, modulo 2^32, from its trailer.
int64_t size_in_trailer(const uint8_t* data, int64_t size) {
  if (size < 18) return 0;  // shorter than an empty member
  uint32_t n = 0;
  for (int i = 0; i < 4; ++i) n |= uint32_t{data[size - 4 + i]} << (8 * i);
  return n;
}

Tensor grown(const Tensor& bytes, int64_t used, int64_t capacity) {
  auto larger = allocate_bytes(capacity);
  std::memcpy(larger.mutable_data_ptr<uint8_t>(), bytes.const_data_ptr<uint8_t>(),
              used);
  return larger;
}

Tensor gunzip(const std::string& path, const Tensor& packed) {
  const auto* in = packed.const_data_ptr<uint8_t>();
  const int64_t size = packed.numel();
  std::unique_ptr<libdeflate_decompressor, void (*)(libdeflate_decompressor*)> inflater(
      libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
  if (!inflater) throw std::bad_alloc();

  // The trailer is believed up to 16 : 1, as a truncated file ends in any four bytes;
  // what packs better, or has several members, grows on the way. The byte more leaves
  // room to grow from.
  auto out = allocate_bytes(std::min(size_in_trailer(in, size), size * 16) + 1);
  int64_t read = 0, written = 0;
  while (read < size) {
    size_t used = 0, made = 0;
    const auto result = libdeflate_gzip_decompress_ex(
        inflater.get(), in + read, size - read,
        out.mutable_data_ptr<uint8_t>() + written, out.numel() - written, &used, &made);
    if (result == LIBDEFLATE_INSUFFICIENT_SPACE) {
      out = grown(out, written, std::max<int64_t>(out.numel() * 2, 4096));
    } else if (result != LIBDEFLATE_SUCCESS) {
      diagnose(path, in + read, read, size - read);
    } else {
      read += static_cast<int64_t>(used);
      written += static_cast<int64_t>(made);
    }
  }
  return out.narrow(0, 0, written);
}

}  // namespace

FileBytes read_bytes(const std::string& path) {
  auto raw = File(path).read_all();
  const auto* data = raw.const_data_ptr<uint8_t>();
  if (raw.numel() >= 2 && data[0] == 0x1f && data[1] == 0x8b) {
    return {gunzip(path, raw), true};
  }
  return {std::move(raw), false};
}

}  // namespace cohort
