// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/parse.h"

#include <charconv>
#include <cmath>

#include "cohort/core/error.h"

namespace cohort {
namespace {

// from_chars takes no plus sign, and a second sign must not slip in behind it.
template <typename T>
std::optional<T> parse_whole(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc() || stop != end) return std::nullopt;
  return value;
}

// Takes a unit off the end of `text` and returns its factor.
double take_unit(std::string_view& text) {
  if (!text.empty() && (text.back() == 'B' || text.back() == 'b')) {
    text.remove_suffix(1);
  }
  double base = 1000;
  if (!text.empty() && text.back() == 'i') {
    base = 1024;
    text.remove_suffix(1);
  }
  const size_t power = text.empty() ? std::string_view::npos
                                    : std::string_view("KkMmGgTt").find(text.back());
  if (power == std::string_view::npos) return base == 1000 ? 1 : 0;
  text.remove_suffix(1);
  return std::pow(base, static_cast<double>(power / 2 + 1));
}

template <typename T>
T require(std::optional<T> value, std::string_view given, std::string_view what,
          const char* legal) {
  if (value) return *value;
  throw ConfigError(
      cohort::text("[core.parse] ", what, ": '", given, "' is not ", legal));
}

}  // namespace

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::optional<int64_t> try_parse_int(std::string_view text) {
  return parse_whole<int64_t>(trim(text));
}

std::optional<double> try_parse_double(std::string_view text) {
  const auto value = parse_whole<double>(trim(text));
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<bool> try_parse_bool(std::string_view text) {
  text = trim(text);
  if (text == "true" || text == "on" || text == "yes" || text == "1") return true;
  if (text == "false" || text == "off" || text == "no" || text == "0") return false;
  return std::nullopt;
}

std::optional<int64_t> try_parse_bytes(std::string_view text) {
  text = trim(text);
  const double unit = take_unit(text);
  const auto number = parse_whole<double>(text);
  if (!number || unit == 0) return std::nullopt;
  const double bytes = *number * unit;
  // Beyond 2^53 a double is no longer exact; nobody types such a size.
  if (!(bytes >= 0 && bytes <= 0x1p53) || bytes != std::floor(bytes)) {
    return std::nullopt;
  }
  return static_cast<int64_t>(bytes);
}

int64_t parse_int(std::string_view text, std::string_view what) {
  return require(try_parse_int(text), text, what, "a whole number, such as 4");
}

int64_t parse_int(std::string_view text, std::string_view what, int64_t lowest,
                  int64_t highest) {
  const int64_t value = parse_int(text, what);
  if (value >= lowest && value <= highest) return value;
  throw ConfigError(cohort::text("[core.parse] ", what, ": ", value,
                                 " is out of range; legal: ", lowest, " to ", highest));
}

int64_t parse_bytes(std::string_view text, std::string_view what) {
  return require(try_parse_bytes(text), text, what,
                 "a size, such as 4096, 4K or 100M (1000-based)");
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t at = text.find(separator);
    parts.emplace_back(trim(text.substr(0, at)));
    if (at == std::string_view::npos) break;
    text.remove_prefix(at + 1);
    if (text.empty()) parts.emplace_back();
  }
  return parts;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string joined;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) joined += separator;
    joined += parts[i];
  }
  return joined;
}

}  // namespace cohort
