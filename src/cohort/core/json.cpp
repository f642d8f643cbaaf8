// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/json.h"

#include <charconv>
#include <cmath>

namespace cohort::json_detail {
namespace {

template <typename T>
std::string number_text(T value) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  return std::string(buffer, end);
}

template <typename T>
std::string floating_text(T value) {
  if (!std::isfinite(value)) return "null";
  std::string digits = number_text(value);
  if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
  return digits;
}

// Length of the legal UTF-8 sequence at the start of `bytes`, or 0 (Unicode
// standard, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF).
size_t utf8_length(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned lead = at(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : lead >= 0xE0 && lead <= 0xEF ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 0;
  if (length == 0 || bytes.size() < length) return 0;
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

void append_ascii(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  if (static_cast<unsigned char>(c) >= 0x20) {
    out += c;
    return;
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += "\\u00";
  out += kDigits[c >> 4];
  out += kDigits[c & 15];
}

}  // namespace

std::string of_string(std::string_view value) {
  std::string out = "\"";
  while (!value.empty()) {
    const size_t length = utf8_length(value);
    if (length == 0) {
      out += "\\ufffd";
    } else if (length == 1) {
      append_ascii(out, value[0]);
    } else {
      out += value.substr(0, length);
    }
    value.remove_prefix(length == 0 ? 1 : length);
  }
  return out + "\"";
}

std::string of_double(double value) { return floating_text(value); }
std::string of_float(float value) { return floating_text(value); }
std::string of_signed(int64_t value) { return number_text(value); }
std::string of_unsigned(uint64_t value) { return number_text(value); }

}  // namespace cohort::json_detail
