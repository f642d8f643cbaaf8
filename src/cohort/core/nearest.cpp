// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/nearest.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>
#include <vector>

namespace cohort {
namespace {

bool same(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) ==
         std::tolower(static_cast<unsigned char>(b));
}

// Damerau-Levenshtein, optimal string alignment: three rows of the table.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1,
                         above[j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1)});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

// Fewer letters begin too much.
constexpr size_t kShortestBeginning = 4;

template <typename Name>
std::string nearest_of(std::string_view given, std::span<const Name> legal) {
  if (legal.empty()) return {};
  const auto distance = [&](const Name& name) {
    const bool begun = given.size() >= kShortestBeginning && name.starts_with(given);
    return std::pair(!begun, edit_distance(given, name));
  };
  return std::string(*std::ranges::min_element(legal, {}, distance));
}

}  // namespace

std::string nearest(std::string_view given, std::span<const std::string_view> legal) {
  return nearest_of(given, legal);
}

std::string nearest(std::string_view given, std::span<const std::string> legal) {
  return nearest_of(given, legal);
}

}  // namespace cohort
