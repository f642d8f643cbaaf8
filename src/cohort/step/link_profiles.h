// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "cohort/step/cost_table.h"

namespace cohort {

// Links of a kind of machine at the speed that their makers publish, for steps that
// nobody ran there: no call is faster, and real ones are slower.
struct LinkProfile {
  std::string_view name;
  std::string_view source;  // in words: what is said, and of what
  int ranks_per_node;
  LinkCost inside, between;  // inside a node, and between nodes
};

std::span<const LinkProfile> link_profiles();

// ConfigError, with the nearest and all names, for one that is not there.
const LinkProfile& find_link_profile(std::string_view name);

// As a table without blocks, for take_links().
CostTable links_of(const LinkProfile& profile);

}  // namespace cohort
