// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/record.h"

namespace cohort::record_detail {
namespace {

constexpr int kBitsOfByte = 7;  // bits of the number per byte; the 8th: more follow
constexpr uint64_t kMoreFollow = 1 << kBitsOfByte;

}  // namespace

void put_number(std::string& out, uint64_t value) {
  for (; value >= kMoreFollow; value >>= kBitsOfByte)
    out += static_cast<char>(value | kMoreFollow);
  out += static_cast<char>(value);
}

void put_word(std::string& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

Reader::Reader(std::string_view bytes, uint32_t mark) : bytes_(bytes) {
  if (word(kRecordMarkBytes) != mark && good())
    refuse("it begins with the mark of other fields");
}

uint64_t Reader::number(uint64_t most) {
  uint64_t value = 0;
  for (int shift = 0; good(); shift += kBitsOfByte) {
    const auto byte = static_cast<uint8_t>(word(1));
    const uint64_t bits = byte & (kMoreFollow - 1);
    if (shift >= 64 || bits << shift >> shift != bits || (byte == 0 && shift > 0)) {
      refuse("a number that is too long");
    } else if (value |= bits << shift; (byte & kMoreFollow) == 0) {
      if (value > most) refuse("a number that is too large");
      break;
    }
  }
  return good() ? value : 0;
}

int64_t Reader::folded_number(int64_t most) {
  const uint64_t folded = number(2 * static_cast<uint64_t>(most) + 1);
  return static_cast<int64_t>(folded >> 1 ^ (0 - (folded & 1)));
}

uint64_t Reader::word(size_t bytes) {
  uint64_t value = 0;
  int shift = 0;
  for (const char byte : cut(bytes)) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(byte)) << shift;
    shift += 8;
  }
  return value;
}

size_t Reader::count() {
  const uint64_t value = number(std::numeric_limits<uint64_t>::max());
  const size_t left = bytes_.size() - at_;
  if (value <= left) return value;
  refuse(text(value, " bytes or more should follow; there are ", left));
  return 0;
}

void Reader::refuse(std::string_view why) {
  if (good()) trouble_ = text("at byte ", at_, " of ", bytes_.size(), ": ", why);
}

bool Reader::is_whole() {
  if (at_ < bytes_.size()) refuse("it should end there");
  return good();
}

std::string_view Reader::cut(size_t bytes) {
  if (bytes > bytes_.size() - at_) refuse("it ends too early");
  if (!good()) return {};
  at_ += bytes;
  return bytes_.substr(at_ - bytes, bytes);
}

}  // namespace cohort::record_detail
