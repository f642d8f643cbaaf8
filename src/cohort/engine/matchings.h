// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

namespace cohort {

// Puts groups that share no member together, so that one split makes all of a matching:
// each is a list of numbers of groups, which are themselves lists of members. A group
// joins the first matching where it fits, in the order of the list: every rank that
// asks about the same groups hears the same. Neighbours along a line come to two
// matchings.
std::vector<std::vector<int>> matchings(std::span<const std::vector<int>> groups);

}  // namespace cohort
