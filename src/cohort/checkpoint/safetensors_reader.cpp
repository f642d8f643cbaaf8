// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/safetensors_reader.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "cohort/core/error.h"
#include "cohort/core/memory.h"

namespace cohort {
namespace {

constexpr int64_t kLengthBytes = 8;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw CheckpointError(text("[checkpoint.safetensors] ", path, ": ", what));
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (!fd_) fail(path_, text("cannot open: ", std::strerror(errno)));
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) {
    fail(path_, text("cannot stat: ", std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) fail(path_, "is not a regular file");
  bytes_ = info.st_size;
  std::string json(read_header_size(), '\0');
  read_at(kLengthBytes, json.data(), static_cast<int64_t>(json.size()));
  data_ = kLengthBytes + static_cast<int64_t>(json.size());
  header_ = parse_header(json, bytes_ - data_, path_);
}

const TensorEntry* SafetensorsReader::find(const std::string& name) const {
  const auto& entries = header_.entries;  // sorted
  const auto found = std::lower_bound(
      entries.begin(), entries.end(), name,
      [](const TensorEntry& entry, const std::string& n) { return entry.name < n; });
  return found != entries.end() && found->name == name ? &*found : nullptr;
}

int64_t SafetensorsReader::read_header_size() const {
  if (bytes_ < kLengthBytes) {
    fail(path_, text("truncated: ", bytes_, " bytes; expected 8 or more"));
  }
  uint64_t length = 0;
  read_at(0, &length, kLengthBytes);
  if (length > static_cast<uint64_t>(kMostHeaderBytes)) {
    fail(path_, text("at byte 0: a header of ", length, " bytes; legal: at most ",
                     kMostHeaderBytes, ": not a safetensors file"));
  }
  if (static_cast<int64_t>(length) > bytes_ - kLengthBytes) {
    fail(path_,
         text("truncated: a header of ", length, " bytes in a file of ", bytes_));
  }
  return static_cast<int64_t>(length);
}

Tensor SafetensorsReader::read(const TensorEntry& entry) const {
  require_memory(
      entry.end - entry.begin, ErrorKind::kCheckpoint,
      text("[checkpoint.safetensors] ", path_, ": tensor '", entry.name, "'"));
  auto tensor = at::empty(entry.shape, entry.dtype);
  read_at(data_ + entry.begin, tensor.mutable_data_ptr(), entry.end - entry.begin);
  if (entry.dtype == at::kBool) check_bools(tensor, entry);
  return tensor;
}

void SafetensorsReader::read_at(int64_t offset, void* out, int64_t count) const {
  auto* bytes = static_cast<char*>(out);
  while (count > 0) {
    const ssize_t n = ::pread(fd_.get(), bytes, count, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      fail(path_, text("cannot read at byte ", offset, ": ", std::strerror(errno)));
    }
    if (n == 0) {
      fail(path_, text("truncated: ends at byte ", offset, " while it is read"));
    }
    bytes += n;
    offset += n;
    count -= n;
  }
}

// Any other byte in a bool is undefined behaviour for code that computes with it.
void SafetensorsReader::check_bools(const Tensor& tensor,
                                    const TensorEntry& entry) const {
  const std::string_view bytes(static_cast<const char*>(tensor.const_data_ptr()),
                               static_cast<size_t>(tensor.nbytes()));
  const auto bad =
      std::find_if(bytes.begin(), bytes.end(), [](char c) { return c != 0 && c != 1; });
  if (bad != bytes.end()) {
    fail(path_, text("tensor '", entry.name, "': byte ", bad - bytes.begin(), " is ",
                     int{static_cast<unsigned char>(*bad)}, "; expected 0 or 1"));
  }
}

}  // namespace cohort
