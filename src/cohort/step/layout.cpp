// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/layout.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/nearest.h"

namespace cohort {
namespace {

struct LayoutKey {
  std::string_view name;
  int Layout::*field;
  int least;
  int most;
};

constexpr int kMost = 1 << 20;
constexpr std::array<LayoutKey, 7> kKeys = {
    {{"dp", &Layout::dp, 1, kMost},
     {"tp", &Layout::tp, 1, kMost},
     {"pp", &Layout::pp, 1, kMost},
     {"shard", &Layout::shard, 0, 3},
     {"replicate", &Layout::replicate, 1, kMost},
     {"cp", &Layout::cp, 1, kMost},
     {"ep", &Layout::ep, 1, kMost}}};

const LayoutKey& find_key(std::string_view name) {
  std::vector<std::string> legal;
  for (const auto& key : kKeys) {
    if (key.name == name) return key;
    legal.emplace_back(key.name);
  }
  throw ConfigError(text("[step] unknown layout key '", name,
                         "'; nearest: ", nearest(name, legal),
                         "; legal: dp, tp, pp, shard, replicate, cp, ep"));
}

int parse_value(const LayoutKey& key, std::string_view given) {
  int value = 0;
  const auto [end, error] =
      std::from_chars(given.data(), given.data() + given.size(), value);
  if (error != std::errc() || end != given.data() + given.size() || value < key.least ||
      value > key.most)
    throw ConfigError(text("[step] layout ", key.name, "='", given,
                           "'; legal: a number from ", key.least, " to ", key.most));
  return value;
}

}  // namespace

std::string Layout::text() const {
  return ::cohort::text("dp=", dp, ",tp=", tp, ",pp=", pp, ",shard=", shard,
                        ",replicate=", replicate,
                        cp > 1 ? ::cohort::text(",cp=", cp) : "",
                        ep > 1 ? ::cohort::text(",ep=", ep) : "");
}

Layout parse_layout(std::string_view keys, int world) {
  Layout layout;
  layout.dp = 0;
  std::vector<const LayoutKey*> seen;
  while (!keys.empty()) {
    const auto item = keys.substr(0, keys.find(','));
    keys.remove_prefix(std::min(keys.size(), item.size() + 1));
    const auto equals = item.find('=');
    if (equals == std::string_view::npos)
      throw ConfigError(
          text("[step] layout '", item, "'; legal: key=value, as in dp=2,shard=0"));
    const LayoutKey& key = find_key(item.substr(0, equals));
    if (std::find(seen.begin(), seen.end(), &key) != seen.end())
      throw ConfigError(text("[step] layout ", key.name, " twice; legal: once"));
    seen.push_back(&key);
    layout.*key.field = parse_value(key, item.substr(equals + 1));
  }
  // Sizes that are far too large must not wrap round.
  const int64_t replica = int64_t{layout.cp} * layout.tp * layout.pp;
  if (layout.dp == 0)
    layout.dp = static_cast<int>(std::max<int64_t>(1, world / replica));
  if (replica > kMost || layout.dp * replica != world)
    throw ConfigError(
        text("[step] layout ", layout.text(), " is for ",
             replica > kMost ? text("more than ", kMost) : text(layout.dp * replica),
             " ranks; the world has ", world, "; legal: dp x cp x tp x pp = ", world,
             world % replica == 0 ? text(", here dp=", world / replica)
                                  : text(", or a multiple of ", replica, " ranks")));
  return layout;
}

int slices_for(int asked, const Layout& layout, int64_t batch) {
  if (asked > 0) return asked;
  if (layout.pp == 1) return layout.dp;
  const int64_t samples = std::max<int64_t>(1, batch / layout.dp);
  return layout.dp * static_cast<int>(std::min<int64_t>(samples, 2 * layout.pp));
}

Layout fitted(Layout layout, int world) {
  layout.dp = world / layout.of_a_replica();
  if (layout.dp % layout.replicate != 0) layout.replicate = 1;
  return layout;
}

}  // namespace cohort
