// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace cohort::test {

// For tests: a zip file of stored records, byte by byte, with any lie in it.
struct ZipRecord {
  std::string name;
  std::string bytes;
  // What its entry of the directory says instead of the truth.
  int64_t size = -1;
  int64_t offset = -1;  // where the local header begins
  uint16_t method = 0;
};

inline void put_number(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i)
    out += static_cast<char>(i < 8 ? value >> (8 * i) : 0);
}

inline std::string zip_head(const ZipRecord& record, uint64_t size) {
  std::string out;
  put_number(out, record.method, 2);
  put_number(out, 0, 4);  // time and date
  put_number(out, 0, 4);  // checksum: nobody looks
  put_number(out, size, 4);
  put_number(out, size, 4);
  put_number(out, record.name.size(), 2);
  put_number(out, 0, 2);  // extra
  return out;
}

// The end of a file whose directory may lie beyond 4 GB: the numbers are in a record of
// their own, and the usual ones are full.
inline std::string wide_zip_end(uint64_t records, uint64_t begin, uint64_t bytes) {
  std::string out("PK\x06\x06", 4);
  put_number(out, 44, 8);  // bytes that follow
  put_number(out, 0, 2 + 2 + 4 + 4);
  for (const uint64_t value : {records, records, bytes, begin})
    put_number(out, value, 8);
  out += "PK\x06\x07";
  put_number(out, 0, 4);
  put_number(out, begin + bytes, 8);  // where this end begins
  put_number(out, 1, 4);
  out += std::string("PK\x05\x06\0\0\0\0", 8) + std::string(12, '\xff');
  put_number(out, 0, 2);
  return out;
}

inline std::string zip_of(const std::vector<ZipRecord>& records, bool wide = false) {
  std::string out, directory;
  for (const auto& record : records) {
    const uint64_t at = out.size();
    if (record.offset < 0 || !record.bytes.empty()) {
      out += std::string("PK\x03\x04\x14\0\0\0", 8);
      out += zip_head(record, record.bytes.size()) + record.name + record.bytes;
    }
    const uint64_t size = record.size < 0 ? record.bytes.size() : record.size;
    directory += std::string("PK\x01\x02\x14\0\x14\0\0\0", 10);
    directory += zip_head(record, size);
    put_number(directory, 0, 2 + 2 + 2 + 4);  // comment, disk, attributes
    put_number(directory, record.offset < 0 ? at : record.offset, 4);
    directory += record.name;
  }
  const uint64_t start = out.size();
  if (wide)
    return out + directory + wide_zip_end(records.size(), start, directory.size());
  out += directory + std::string("PK\x05\x06\0\0\0\0", 8);
  put_number(out, records.size(), 2);
  put_number(out, records.size(), 2);
  put_number(out, directory.size(), 4);
  put_number(out, start, 4);
  put_number(out, 0, 2);
  return out;
}

// {"w": a tensor} as torch.save pickles it: `size` and `stride` are pickled tuples.
// `wrap`: what is called with the tensor, "cMODULE\nNAME\n".
inline std::string pickled_tensor(const std::string& size, const std::string& stride,
                                  const std::string& numel = "K\x01",
                                  const std::string& wrap = "") {
  return std::string("\x80\x02}X\x01\0\0\0w", 9) + (wrap.empty() ? "" : wrap + "(") +
         "ctorch._utils\n_rebuild_tensor_v2\n((" +
         std::string("X\x07\0\0\0storage", 12) + "ctorch\nFloatStorage\n" +
         std::string("X\x01\0\0\0", 5) + "0" + std::string("X\x03\0\0\0cpu", 8) +
         numel + "tQ" + std::string("K\0", 2) + size + stride +
         "\x89"
         "}tR" +
         (wrap.empty() ? "" : "tR") + "s.";
}

}  // namespace cohort::test
