// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/memory_limit.h"

#include <gtest/gtest.h>

#include "cohort/nn/models.h"

namespace cohort {
namespace {

struct Foretold {
  RolePeak peak;
  int64_t parameters = 0;  // bytes of all
};

Foretold foretell(int ranks, int shard, ComputeOn compute_on,
                  GeneratorOptions step = {}) {
  const Chain chain = make_mlp({.inputs = 8, .width = 8, .depth = 2}, {});
  std::vector<BlockSpec> specs = specs_of(chain);
  for (auto& spec : specs) {
    spec.activation_bytes = 1000;
    spec.scratch_bytes = 10;
  }
  const Layout layout{.dp = ranks, .shard = shard};
  step.slices = ranks;
  step.memory = memory_for({.compute_on = compute_on});
  const Schedule schedule = generate(specs, layout, step);
  Foretold foretold{.peak = check(schedule).largest()};
  for (const auto& bucket : schedule.buckets) foretold.parameters += bucket.numel * 4;
  return foretold;
}

TEST(MemoryLimit, OfARankOnTheHostIsAllThere) {
  const RolePeak peak = foretell(2, 0, ComputeOn::kHost).peak;
  EXPECT_EQ(peak.on_host(), peak.parts.total());
  EXPECT_EQ(peak.on_device, 0);
}

TEST(MemoryLimit, OfRanksOnGpusIsAllThere) {
  for (const int ranks : {1, 3}) {
    for (const int shard : {0, 1, 3}) {
      const RolePeak peak = foretell(ranks, shard, ComputeOn::kCuda).peak;
      EXPECT_EQ(peak.on_host(), 0);
      EXPECT_EQ(peak.on_device, peak.parts.total());
    }
  }
}

TEST(MemoryLimit, OfStateThatIsOffloadedIsOnTheHost) {
  const auto [all, parameters] = foretell(1, 0, ComputeOn::kCuda);
  const RolePeak moments = foretell(1, 0, ComputeOn::kCuda, {.offload = true}).peak;
  EXPECT_EQ(moments.on_host(), parameters);
  EXPECT_EQ(moments.on_device, all.on_device - parameters);
  const Foretold shares =
      foretell(1, 0, ComputeOn::kCuda, {.offload_parameters = true});
  EXPECT_EQ(shares.peak.on_host(), 2 * shares.parameters);
}

TEST(MemoryLimit, OfOneKindIsNoHelpForTheOther) {
  const PlacedMemory need{.host = 10, .gpu = 20};
  EXPECT_TRUE(need.fits({.host = 10, .gpu = 20}));
  EXPECT_FALSE(need.fits({.host = 100, .gpu = 19}));
  EXPECT_FALSE(need.fits({.host = 9, .gpu = 100}));
  EXPECT_EQ(need.text(), "20 B of the GPU's memory and 10 B of the host's");
  EXPECT_EQ((PlacedMemory{.host = 10}).text(), "10 B");
}

}  // namespace
}  // namespace cohort
