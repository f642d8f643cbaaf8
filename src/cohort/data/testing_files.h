// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <libdeflate.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace cohort::test {

inline void write_file(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);  // truncating a file makes some systems sync it
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string gzip(const std::string& bytes) {
  auto* deflater = libdeflate_alloc_compressor(6);
  std::string out(libdeflate_gzip_compress_bound(deflater, bytes.size()), '\0');
  out.resize(libdeflate_gzip_compress(deflater, bytes.data(), bytes.size(), out.data(),
                                      out.size()));
  libdeflate_free_compressor(deflater);
  return out;
}

// An IDX file of unsigned bytes.
inline std::string idx(const std::vector<uint32_t>& shape,
                       const std::string& elements) {
  std::string out{0, 0, 8, static_cast<char>(shape.size())};
  for (const auto n : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(n >> shift);
  }
  return out + elements;
}

}  // namespace cohort::test
