// SPDX-License-Identifier: Apache-2.0
// One thing wrong in what an action says of itself: its values, versions, buffers,
// lane, waits. Every such list is refused.
#include <gtest/gtest.h>

#include "cohort/core/testing_long_form.h"
#include "cohort/step/generator.h"
#include "cohort/step/testing_mutants.h"
#include "cohort/step/testing_pipeline.h"
#include "cohort/step/testing_schedule.h"

namespace cohort {
namespace {

using test::refusal;

int64_t expect_all_refused(const Schedule& schedule, const std::string& name,
                           const MutantOptions& options) {
  EXPECT_EQ(refusal(schedule), "accepted") << name;
  int64_t refused = 0;
  for_each_altered(schedule, options, [&](const Mutant& mutant) {
    const bool accepted = refusal(mutant.schedule) == "accepted";
    EXPECT_FALSE(accepted) << name << ", " << mutant.what;
    refused += !accepted;
  });
  return refused;
}

TEST(AlteredActions, OfPipelinesAreRefused) {
  int64_t refused = 0;
  uint64_t seed = 500;
  for (const auto& [name, pipe] : test::right_pipelines()) {
    const Schedule schedule = test::make(pipe);
    const bool all = test::is_long() || schedule.world() <= 2;
    refused += expect_all_refused(schedule, name,
                                  {.most_exchanges = all ? 0 : 50, .seed = seed++});
  }
  RecordProperty("refused", static_cast<int>(refused));
  EXPECT_GT(refused, 3'000);
}

// Exchanges of several transfers, and steps that begin early.
TEST(AlteredActions, OfPipelinesThatRunAheadAreRefused) {
  int64_t refused = 0;
  uint64_t seed = 700;
  for (auto [name, pipe] : test::right_pipelines()) {
    pipe.batched = pipe.runs_ahead = true;
    const Schedule schedule = test::make(pipe);
    const bool all = test::is_long();
    refused += expect_all_refused(schedule, name,
                                  {.most_exchanges = all ? 0 : 50, .seed = seed++});
  }
  RecordProperty("refused", static_cast<int>(refused));
  EXPECT_GT(refused, 1'000);
}

TEST(AlteredActions, OfDataParallelStepsAreRefused) {
  std::vector<BlockSpec> blocks(3);
  for (int b = 0; b < 3; ++b)
    blocks[b] = {.name = text("block ", b),
                 .parameters = {{.name = text("w", b), .shape = {2000}, .end = 2000}},
                 .keeps_statistics = b == 1,
                 .activation_bytes = 100,
                 .output_bytes = 10};
  int64_t refused = 0;
  for (int shard = 0; shard <= 3; ++shard)
    for (const bool elastic : {false, true}) {
      const Schedule schedule =
          generate(blocks, {.dp = 3, .shard = shard},
                   {.slices = 4, .bucket_bytes = 1, .clip = true, .elastic = elastic});
      refused += expect_all_refused(schedule, text("shard ", shard), {});
    }
  RecordProperty("refused", static_cast<int>(refused));
  EXPECT_GT(refused, 3'000);
}

}  // namespace
}  // namespace cohort
