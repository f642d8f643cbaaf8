// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/idx.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iomanip>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/data/gzip.h"

namespace cohort {
namespace {

constexpr uint32_t kUnsignedByte = 0x08;

uint32_t big_endian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
}

std::string magic_text(uint32_t magic) {
  return text("0x", std::hex, std::setw(8), std::setfill('0'), magic);
}

uint32_t magic_of(int dims) { return kUnsignedByte << 8 | static_cast<uint32_t>(dims); }

std::vector<int64_t> shape_of(const uint8_t* header, int dims) {
  std::vector<int64_t> shape;
  for (int i = 0; i < dims; ++i) shape.push_back(big_endian(header + 4 + 4 * i));
  return shape;
}

// None if they are too many to count, even beside a size of zero: strides are products.
std::optional<int64_t> elements_of(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  bool empty = false;
  for (const auto n : shape) {
    empty = empty || n == 0;
    if (n > 0 && count > std::numeric_limits<int64_t>::max() / 2 / n) return {};
    count *= std::max<int64_t>(n, 1);
  }
  return empty ? 0 : count;
}

// The bytes of a file with this beginning; of one that is no such file, enough to say
// why not.
int64_t file_size(std::string_view head, int dims) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(head.data());
  const int64_t header = 4 + 4 * dims;
  if (static_cast<int64_t>(head.size()) < header || big_endian(bytes) != magic_of(dims))
    return kHeadBytes;
  const auto count = elements_of(shape_of(bytes, dims));
  return count ? header + *count : kHeadBytes;
}

// One file while it is checked: all errors say where they are.
class Parser {
 public:
  Parser(const std::string& path, int dims)
      : path_(path),
        dims_(dims),
        file_(read_bytes(path, [dims](auto head) { return file_size(head, dims); })) {}

  Tensor parse() const {
    const int64_t header = 4 + 4 * dims_;
    const uint32_t expected = magic_of(dims_);
    if (size() >= 4 && big_endian(data()) != expected) {
      fail(0, text("magic number ", magic_text(big_endian(data())), "; expected ",
                   magic_text(expected), " (unsigned bytes, ", dims_, " dimensions)"));
    }
    if (size() < header) {
      fail(size(), text("truncated: the file ends in its header; expected ", header,
                        " bytes of header"));
    }
    const auto shape = shape_of(data(), dims_);
    const auto count = elements_of(shape);
    if (!count) fail(4, text("sizes ", format_shape(shape), " are too large"));
    check_length(header, shape, *count);
    return file_.bytes.narrow(0, header, *count).view(shape);
  }

 private:
  const uint8_t* data() const { return file_.bytes.const_data_ptr<uint8_t>(); }
  int64_t size() const { return file_.size; }

  void check_length(int64_t header, const std::vector<int64_t>& shape,
                    int64_t count) const {
    const auto expected =
        text("expected ", header + count, " bytes (", header, " of header and ",
             format_shape(shape), "), found ",
             file_.packed && file_.longer ? "more" : std::to_string(size()));
    if (size() < header + count) fail(size(), "truncated: " + expected);
    if (size() > header + count) fail(header + count, "extra bytes: " + expected);
  }

  [[noreturn]] void fail(int64_t at, const std::string& what) const {
    const char* where = file_.packed ? " of the unpacked data" : "";
    throw DataError(text("[data.idx] ", path_, ": at byte ", at, where, ": ", what));
  }

  std::string path_;
  int dims_;
  FileBytes file_;
};

}  // namespace

Tensor read_idx(const std::string& path, int dims) {
  return Parser(path, dims).parse();
}

}  // namespace cohort
