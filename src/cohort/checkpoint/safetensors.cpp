// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/safetensors.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "cohort/checkpoint/safetensors_header.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/hash.h"

namespace cohort {
namespace {

static_assert(std::endian::native == std::endian::little,
              "both formats are little-endian, and bytes are copied as they lie");

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMaxHeader = 100'000'000;  // the limit of every safetensors reader

[[noreturn]] void fail_file(const std::string& path, const std::string& what) {
  throw CheckpointError(text("[checkpoint.safetensors] ", path, ": ", what));
}

std::string_view bytes_of_tensor(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()),
          static_cast<size_t>(tensor.nbytes())};
}

// Detached, on the CPU, dense and contiguous; sorted by name. `where` is for messages.
std::vector<NamedTensor> prepared(std::span<const NamedTensor> tensors,
                                  const std::string& where) {
  std::vector<NamedTensor> out;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || safetensors_dtype(tensor.scalar_type()) == nullptr) {
      fail_file(where, text("tensor '", name, "': ",
                            tensor.defined() ? c10::toString(tensor.scalar_type())
                                             : "an undefined tensor",
                            "; legal: F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL"));
    }
    out.push_back({name, tensor.detach().cpu().contiguous()});
  }
  std::sort(out.begin(), out.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

// Wide elements first, so that every tensor is aligned to its elements in the file
// though the format allows no gaps; then by name.
std::vector<size_t> data_order(const std::vector<NamedTensor>& tensors) {
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return tensors[a].tensor.element_size() > tensors[b].tensor.element_size();
  });
  return order;
}

class FileReader {
 public:
  explicit FileReader(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) fail_file(path_, text("cannot open: ", std::strerror(errno)));
  }
  ~FileReader() { ::close(fd_); }
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  SafetensorsFile read() {
    const int64_t size = file_size();
    const int64_t header_size = read_header_size(size);
    std::string json(header_size, '\0');
    read_at(kLengthBytes, json.data(), header_size);
    const int64_t data = kLengthBytes + header_size;
    auto header = parse_header(json, size - data, path_);

    SafetensorsFile file;
    file.metadata = std::move(header.metadata);
    for (const auto& entry : header.entries) {
      auto tensor = at::empty(entry.shape, entry.dtype);
      read_at(data + entry.begin, tensor.mutable_data_ptr(), entry.end - entry.begin);
      if (entry.dtype == at::kBool) check_bools(tensor, entry);
      file.tensors.push_back({entry.name, std::move(tensor)});
    }
    return file;
  }

 private:
  int64_t file_size() const {
    struct stat info {};
    if (::fstat(fd_, &info) != 0) {
      fail_file(path_, text("cannot stat: ", std::strerror(errno)));
    }
    if (!S_ISREG(info.st_mode)) fail_file(path_, "is not a regular file");
    return info.st_size;
  }

  int64_t read_header_size(int64_t size) const {
    if (size < kLengthBytes) {
      fail_file(path_, text("truncated: ", size, " bytes; expected 8 or more"));
    }
    uint64_t length = 0;
    read_at(0, &length, kLengthBytes);
    if (length > static_cast<uint64_t>(kMaxHeader)) {
      fail_file(path_,
                text("at byte 0: a header of ", length, " bytes; legal: at most ",
                     kMaxHeader, ": not a safetensors file"));
    }
    if (static_cast<int64_t>(length) > size - kLengthBytes) {
      fail_file(path_,
                text("truncated: a header of ", length, " bytes in a file of ", size));
    }
    return static_cast<int64_t>(length);
  }

  void read_at(int64_t offset, void* out, int64_t count) const {
    auto* bytes = static_cast<char*>(out);
    while (count > 0) {
      const ssize_t n = ::pread(fd_, bytes, count, offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        fail_file(path_,
                  text("cannot read at byte ", offset, ": ", std::strerror(errno)));
      }
      if (n == 0) {
        fail_file(path_, text("truncated: ends at byte ", offset, " while it is read"));
      }
      bytes += n;
      offset += n;
      count -= n;
    }
  }

  // Any other byte in a bool is undefined behaviour for whoever computes with it.
  void check_bools(const Tensor& tensor, const TensorEntry& entry) const {
    const auto bytes = bytes_of_tensor(tensor);
    const auto bad = std::find_if(bytes.begin(), bytes.end(),
                                  [](char c) { return c != 0 && c != 1; });
    if (bad != bytes.end()) {
      fail_file(path_,
                text("tensor '", entry.name, "': byte ", bad - bytes.begin(), " is ",
                     int{static_cast<unsigned char>(*bad)}, "; expected 0 or 1"));
    }
  }

  std::string path_;
  int fd_;
};

}  // namespace

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  const auto sorted = prepared(tensors, path);
  const auto order = data_order(sorted);
  SafetensorsHeader header{.entries = std::vector<TensorEntry>(sorted.size()),
                           .metadata = metadata};
  std::vector<std::string_view> pieces(2);
  int64_t next = 0;
  for (const size_t i : order) {
    const auto& [name, tensor] = sorted[i];
    const auto bytes = bytes_of_tensor(tensor);
    header.entries[i] = {name, tensor.scalar_type(), tensor.sizes().vec(), next,
                         next + static_cast<int64_t>(bytes.size())};
    next = header.entries[i].end;
    pieces.push_back(bytes);
  }
  const auto json = format_header(header, path);
  if (static_cast<int64_t>(json.size()) > kMaxHeader) {
    fail_file(path,
              text("a header of ", json.size(), " bytes; legal: at most ", kMaxHeader));
  }
  const uint64_t length = json.size();
  pieces[0] = {reinterpret_cast<const char*>(&length), sizeof(length)};
  pieces[1] = json;
  write_file_atomically(path, pieces, ErrorKind::kCheckpoint);
}

SafetensorsFile read_safetensors(const std::string& path) {
  return FileReader(path).read();
}

uint64_t weights_hash_number(std::span<const NamedTensor> tensors) {
  Hasher hasher;
  const auto number = [&hasher](int64_t n) { hasher.update(&n, sizeof(n)); };
  const auto string = [&](std::string_view s) {
    number(static_cast<int64_t>(s.size()));
    hasher.update(s);
  };
  for (const auto& [name, tensor] : prepared(tensors, "weights_hash")) {
    string(name);
    string(safetensors_dtype(tensor.scalar_type()));
    number(tensor.dim());
    for (const int64_t n : tensor.sizes()) number(n);
    hasher.update(bytes_of_tensor(tensor));
  }
  return hasher.digest();
}

std::string weights_hash(std::span<const NamedTensor> tensors) {
  return hex16(weights_hash_number(tensors));
}

}  // namespace cohort
