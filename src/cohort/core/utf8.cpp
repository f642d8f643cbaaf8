// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/utf8.h"

#include <string>

namespace cohort {
namespace {

size_t length_by_lead(unsigned lead) {
  return lead < 0x80                    ? 1
         : lead >= 0xC2 && lead <= 0xDF ? 2
         : lead >= 0xE0 && lead <= 0xEF ? 3
         : lead >= 0xF0 && lead <= 0xF4 ? 4
                                        : 0;
}

}  // namespace

size_t utf8_length(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned lead = at(0);
  const size_t length = length_by_lead(lead);
  if (length <= 1) return length;
  if (bytes.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned second = at(1);
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
      (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) {
    return 0;
  }
  return length;
}

// The bytes that are missing are tried: the least and the greatest second one decide.
bool is_utf8_begun(std::string_view bytes) {
  if (bytes.empty()) return true;
  const size_t length = length_by_lead(static_cast<unsigned char>(bytes[0]));
  if (length == 0 || bytes.size() >= length) return false;
  for (const char filler : {'\x80', '\xBF'}) {
    std::string whole(bytes);
    whole.resize(length, filler);
    if (utf8_length(whole) == length) return true;
  }
  return false;
}

}  // namespace cohort
