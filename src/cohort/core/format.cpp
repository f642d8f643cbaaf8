// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/format.h"

#include <cmath>
#include <cstdio>
#include <ctime>

namespace cohort {
namespace {

template <typename... Values>
std::string print(const char* format, Values... values) {
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), format, values...);
  return buffer;
}

// Three significant digits without an exponent, for 0.001 <= |value| < 1000.
std::string three_digits(double value) {
  const double size = std::abs(value);
  const int digits = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3;
  return format_fixed(value, digits);
}

}  // namespace

std::string format_fixed(double value, int digits) {
  if (!std::isfinite(value))
    return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  if (std::abs(value) >= 1e15) return print("%.3g", value);
  return print("%.*f", digits, value);
}

std::string format_bytes(double bytes) {
  if (std::abs(bytes) < 1000) return format_fixed(bytes, 0) + " B";
  static constexpr const char* kUnits[] = {" KB", " MB", " GB", " TB", " PB"};
  int unit = 0;
  for (bytes /= 1000; std::abs(bytes) >= 999.5 && unit < 4; bytes /= 1000) ++unit;
  return three_digits(bytes) + kUnits[unit];
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  if (seconds < 0) return std::string("-").append(format_duration(-seconds));
  if (seconds == 0) return "0 s";
  if (seconds < 0.9995e-3) return three_digits(seconds * 1e6) + " us";
  if (seconds < 0.9995) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 59.95) return three_digits(seconds) + " s";
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 3600) return print("%lld min %02lld s", whole / 60, whole % 60);
  return print("%lld h %02lld min", whole / 3600, whole % 3600 / 60);
}

std::string format_clock(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "?";
  const auto whole = static_cast<long long>(seconds);
  if (whole < 3600) return print("%02lld:%02lld", whole / 60, whole % 60);
  return print("%lld:%02lld:%02lld", whole / 3600, whole % 3600 / 60, whole % 60);
}

std::string format_quantity(double value) {
  const double size = std::abs(value);
  if (!std::isfinite(value)) return format_fixed(value, 0);
  if (size == 0) return "0";
  if (size < 1000 || size >= 999.5e9) return print("%.3g", value);
  if (size < 9999.5) return format_fixed(value, 0);
  if (size < 999.5e3) return three_digits(value / 1e3) + "K";
  if (size < 999.5e6) return three_digits(value / 1e6) + "M";
  return three_digits(value / 1e9) + "G";
}

std::string format_shape(std::span<const int64_t> sizes) {
  std::string out = sizes.empty() ? "scalar" : "";
  for (const int64_t n : sizes) out += (out.empty() ? "" : "x") + std::to_string(n);
  return out;
}

std::string format_time(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char buffer[32];
  std::strftime(buffer, sizeof(buffer), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return buffer;
}

}  // namespace cohort
