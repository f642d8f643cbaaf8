// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/layout_oracle.h"

namespace cohort {
namespace {

std::vector<PipelineOptions> orders_for(int places, int blocks) {
  if (places == 1) return {{}};
  std::vector<PipelineOptions> orders;
  for (const auto order : {PipelineOrder::kGpipe, PipelineOrder::kOneForwardOneBackward,
                           PipelineOrder::kInterleaved, PipelineOrder::kZeroBubble}) {
    PipelineOptions options{.order = order};
    if (order == PipelineOrder::kInterleaved) {
      options.stages_per_place = 2;
      if (2 * places > blocks) continue;
    }
    orders.push_back(options);
  }
  return orders;
}

// Levels of sharding, and copies of a sharded state. As many copies as ranks would
// leave nothing to cut.
std::vector<Layout> sharded(Layout layout) {
  std::vector<Layout> all = {layout};
  for (layout.shard = 1; layout.dp > 1 && layout.shard <= 3; ++layout.shard)
    for (layout.replicate = 1; layout.replicate < layout.dp; ++layout.replicate)
      if (layout.dp % layout.replicate == 0) all.push_back(layout);
  return all;
}

}  // namespace

std::vector<LayoutCase> every_layout(int most_ranks, int blocks, int slices) {
  std::vector<LayoutCase> cases;
  for (int world = 1; world <= most_ranks; ++world)
    for (int tp = 1; tp <= world; ++tp)
      for (int pp = 1; pp * tp <= world && pp <= blocks; ++pp) {
        if (world % (tp * pp) != 0) continue;
        const int dp = world / (tp * pp);
        if (dp > slices) continue;
        for (const Layout& layout : sharded({.dp = dp, .tp = tp, .pp = pp}))
          for (const auto& order : orders_for(pp, blocks))
            for (const bool sequence : {true, false}) {
              if (tp == 1 && !sequence) continue;
              // Recompute with every other layout: it changes nothing but memory.
              cases.push_back({.layout = layout,
                               .pipeline = order,
                               .sequence = sequence,
                               .recompute = cases.size() % 2 == 1});
            }
      }
  return cases;
}

}  // namespace cohort
