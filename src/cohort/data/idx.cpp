// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/idx.h"

#include <ATen/ATen.h>

#include <iomanip>
#include <limits>
#include <vector>

#include "cohort/core/error.h"
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

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out;
  for (const auto n : shape) {
    if (!out.empty()) out += 'x';
    out += std::to_string(n);
  }
  return out;
}

// One file while it is checked: all errors say where they are.
class Parser {
 public:
  Parser(const std::string& path, int dims) : path_(path), dims_(dims) {
    auto file = read_bytes(path);
    bytes_ = std::move(file.bytes);
    where_ = file.packed ? " of the unpacked data" : "";
  }

  Tensor parse() const {
    const int64_t header = 4 + 4 * dims_;
    const uint32_t expected = kUnsignedByte << 8 | static_cast<uint32_t>(dims_);
    if (size() >= 4 && big_endian(data()) != expected) {
      fail(0, text("magic number ", magic_text(big_endian(data())), "; expected ",
                   magic_text(expected), " (unsigned bytes, ", dims_, " dimensions)"));
    }
    if (size() < header) {
      fail(size(), text("truncated: the file ends in its header; expected ", header,
                        " bytes of header"));
    }
    const auto shape = parse_shape();
    int64_t count = 1;
    for (const auto n : shape) {
      if (n > 0 && count > std::numeric_limits<int64_t>::max() / 2 / n) {
        fail(4, text("sizes ", shape_text(shape), " are too large"));
      }
      count *= n;
    }
    check_length(header, shape, count);
    return bytes_.narrow(0, header, count).view(shape);
  }

 private:
  const uint8_t* data() const { return bytes_.const_data_ptr<uint8_t>(); }
  int64_t size() const { return bytes_.numel(); }

  std::vector<int64_t> parse_shape() const {
    std::vector<int64_t> shape;
    for (int i = 0; i < dims_; ++i) shape.push_back(big_endian(data() + 4 + 4 * i));
    return shape;
  }

  void check_length(int64_t header, const std::vector<int64_t>& shape,
                    int64_t count) const {
    const auto expected =
        text("expected ", header + count, " bytes (", header, " of header and ",
             shape_text(shape), "), found ", size());
    if (size() < header + count) fail(size(), "truncated: " + expected);
    if (size() > header + count) fail(header + count, "extra bytes: " + expected);
  }

  [[noreturn]] void fail(int64_t at, const std::string& what) const {
    throw DataError(text("[data.idx] ", path_, ": at byte ", at, where_, ": ", what));
  }

  std::string path_;
  int dims_;
  Tensor bytes_;
  const char* where_ = "";
};

}  // namespace

Tensor read_idx(const std::string& path, int dims) {
  return Parser(path, dims).parse();
}

}  // namespace cohort
