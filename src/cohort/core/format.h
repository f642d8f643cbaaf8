// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>

namespace cohort {

// Numbers as people read them. Programs read JSON instead.

// "640 B", "4.10 KB", "100 MB": 1000-based, three digits.
std::string format_bytes(double bytes);
// "12.3 us", "350 ms", "4.20 s", "2 min 05 s", "3 h 07 min".
std::string format_duration(double seconds);
// "00:07", "12:34", "1:02:03"; "?" for what is not known (negative, NaN, infinite).
std::string format_clock(double seconds);
// Three significant digits, with K, M or G from 10,000 on: "0.0123", "857", "12.3K".
std::string format_quantity(double value);
// A fixed number of digits behind the point.
std::string format_fixed(double value, int digits);
// The sizes of a tensor: "512x784"; "scalar" where there are none.
std::string format_shape(std::span<const int64_t> sizes);
// UTC, "2026-01-31T12:00:00Z".
std::string format_time(std::chrono::system_clock::time_point time);

}  // namespace cohort
