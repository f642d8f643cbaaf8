// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/json.h"

#include <charconv>
#include <cmath>

#include "cohort/core/utf8.h"

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
