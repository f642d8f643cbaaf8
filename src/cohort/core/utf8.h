// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace cohort {

// Length of the legal UTF-8 sequence at the start of `bytes`, which are some, or 0
// (Unicode standard, table 3-7: no overlong forms, no surrogates, nothing above
// U+10FFFF).
size_t utf8_length(std::string_view bytes);

// Whether more bytes could make a legal sequence of `bytes`, which are none yet.
bool is_utf8_begun(std::string_view bytes);

}  // namespace cohort
