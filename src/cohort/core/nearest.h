// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace cohort {

// The entry of `legal` with the smallest edit distance to `given`, for "did you
// mean" messages; upper and lower case count as equal, neighbouring letters that
// were swapped as one edit. What `given` is the beginning of comes before all others.
// Ties go to the first; empty if `legal` is.
std::string nearest(std::string_view given, std::span<const std::string_view> legal);
std::string nearest(std::string_view given, std::span<const std::string> legal);

}  // namespace cohort
