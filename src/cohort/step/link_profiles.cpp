// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/link_profiles.h"

#include <array>
#include <string>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/nearest.h"
#include "cohort/core/parse.h"

namespace cohort {
namespace {

// NVLink 4: 18 links of 25 GB/s each way. The latencies are usual for a small
// collective, no maker publishes them.
constexpr LinkCost kNvlink4{.latency = 10e-6, .bytes_per_second = 450e9};
constexpr LinkCost kNdr{.latency = 20e-6, .bytes_per_second = 50e9};
// A ring over whole nodes leaves each of them by all of its adapters.
constexpr LinkCost kEightNdr{.latency = 20e-6, .bytes_per_second = 400e9};

constexpr std::array<LinkProfile, 2> kProfiles{{
    {"nvlink4-ndr",
     "published: NVLink 4 of H100 and H200, 450 GB/s each way; between nodes of 8 "
     "InfiniBand NDR, 400 Gb/s for each GPU; latencies of 10 and 20 us assumed",
     8, kNvlink4, kNdr},
    {"nvlink4-ndr-rails",
     "published: NVLink 4 of H100 and H200, 450 GB/s each way; between nodes of 8 all "
     "eight InfiniBand NDR adapters at once, 3.2 Tb/s; latencies of 10 and 20 us "
     "assumed",
     8, kNvlink4, kEightNdr},
}};

}  // namespace

std::span<const LinkProfile> link_profiles() { return kProfiles; }

const LinkProfile& find_link_profile(std::string_view name) {
  std::vector<std::string> legal;
  for (const LinkProfile& profile : kProfiles) {
    if (profile.name == name) return profile;
    legal.emplace_back(profile.name);
  }
  throw ConfigError(text("[step] unknown links '", name, "'; nearest: ",
                         nearest(name, legal), "; legal: ", join(legal, ", ")));
}

CostTable links_of(const LinkProfile& profile) {
  CostTable table;
  table.ranks_per_node = profile.ranks_per_node;
  table.links = {{"*", profile.inside}, {"*@nodes", profile.between}};
  return table;
}

}  // namespace cohort
