// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort {

// Readers of what a user typed. The whole text must be of the form; spaces around
// it are not part of it. No value: the text is not of that form.
std::optional<int64_t> try_parse_int(std::string_view text);
std::optional<double> try_parse_double(std::string_view text);  // finite
std::optional<bool> try_parse_bool(
    std::string_view text);  // true/false, on/off, yes/no
// 4096, 4K, 1.5M, 2G, 1T: 1000-based, as in the contract; Ki, Mi, Gi: 1024-based; a B
// may follow. Whole and not negative.
std::optional<int64_t> try_parse_bytes(std::string_view text);

// The same, throwing ConfigError with the name of the setting, what was given and
// what is legal: parse_bytes("12X", "--bytes").
int64_t parse_int(std::string_view text, std::string_view what);
int64_t parse_int(std::string_view text, std::string_view what, int64_t lowest,
                  int64_t highest);
int64_t parse_bytes(std::string_view text, std::string_view what);

// Parts between separators, trimmed; empty parts stay. An empty text has no part.
std::vector<std::string> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& parts, std::string_view separator);
// Without blanks, tabs and line ends around it.
std::string_view trim(std::string_view text);

}  // namespace cohort
