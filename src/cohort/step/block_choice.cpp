// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/block_choice.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "cohort/core/error.h"
#include "cohort/core/parse.h"

namespace cohort {
namespace {

constexpr std::string_view kEvery = "every=", kBlocks = "blocks=";

std::optional<int> try_parse_number(std::string_view text, int lowest) {
  const auto number = try_parse_int(text);
  if (!number || *number < lowest || *number > std::numeric_limits<int>::max())
    return std::nullopt;
  return static_cast<int>(*number);
}

// "3" or "3-5".
std::optional<std::pair<int, int>> try_parse_range(std::string_view text) {
  const size_t dash = text.find('-');
  const auto first = try_parse_number(text.substr(0, dash), 0);
  const auto last =
      dash == text.npos ? first : try_parse_number(text.substr(dash + 1), 0);
  if (!first || !last || *last < *first) return std::nullopt;
  return std::pair(*first, *last);
}

}  // namespace

BlockChoice BlockChoice::parse(std::string_view given, std::string_view what) {
  const std::string_view word = trim(given);
  if (word == "none" || word == "all") return word == "all";
  if (const auto flag = try_parse_bool(word)) return *flag;
  BlockChoice choice;
  bool legal = false;
  if (word.starts_with(kEvery)) {
    choice.every_ = try_parse_number(word.substr(kEvery.size()), 1).value_or(0);
    legal = choice.every_ > 0;
  } else if (word.starts_with(kBlocks)) {
    const auto parts = split(word.substr(kBlocks.size()), ',');
    for (const auto& part : parts)
      if (const auto range = try_parse_range(part)) choice.ranges_.push_back(*range);
    legal = !parts.empty() && choice.ranges_.size() == parts.size();
  }
  if (legal) return choice;
  throw ConfigError(cohort::text("[step] ", what, " is '", given,
                                 "'; legal: none, all, every=K with K of 1 or more, or "
                                 "blocks=LIST such as blocks=0-3,7"));
}

bool BlockChoice::has(int block) const {
  if (every_ > 0) return block % every_ == 0;
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& range) {
    return range.first <= block && block <= range.second;
  });
}

std::string BlockChoice::text() const {
  if (every_ > 0) return is_all() ? "all" : cohort::text(kEvery, every_);
  std::string list;
  for (const auto& [first, last] : ranges_) {
    list += cohort::text(list.empty() ? "" : ",", first);
    if (last > first) list += cohort::text("-", last);
  }
  return list.empty() ? "none" : cohort::text(kBlocks, list);
}

void BlockChoice::require_within(int blocks, std::string_view what) const {
  for (const auto& [first, last] : ranges_)
    if (last >= blocks)
      throw ConfigError(cohort::text("[step] ", what, "=", text(), " names block ",
                                     last, "; legal: 0 to ", blocks - 1));
}

}  // namespace cohort
