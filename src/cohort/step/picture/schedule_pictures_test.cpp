// SPDX-License-Identifier: Apache-2.0
// Pictures of the schedules that `pipeline.schedule` names, as the generator writes
// them.
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/step/generator.h"
#include "cohort/step/picture/renderer.h"
#include "cohort/step/picture/testing_stage_picture.h"
#include "cohort/step/testing_golden.h"
#include "cohort/step/testing_schedule.h"

namespace cohort {
namespace {

// Eight blocks that cost the same, at four places.
Schedule four_places(const char* name) {
  std::vector<BlockSpec> blocks;
  for (int b = 0; b < 8; ++b)
    blocks.push_back({.name = text("block ", b),
                      .parameters = {{.name = text("w", b), .shape = {10'000'000}}},
                      .activation_bytes = 48'000'000,
                      .output_bytes = 4'000'000,
                      .cost = 1});
  return generate(blocks, {.pp = 4},
                  {.slices = 8, .pipeline = parse_pipeline({.schedule = name})});
}

TEST(SchedulePictures, AreOfWhatIsGenerated) {
  for (const auto& [name, file, title] :
       {std::tuple("gpipe", "schedule_gpipe", "gpipe: pp=4, 8 slices"),
        std::tuple("1f1b", "schedule_1f1b", "1f1b: pp=4, 8 slices"),
        std::tuple("interleaved", "schedule_interleaved",
                   "interleaved: pp=4, two stages at each place, 8 slices"),
        std::tuple("zero-bubble", "schedule_zero_bubble",
                   "zero-bubble: pp=4, 8 slices")}) {
    const Schedule schedule = four_places(name);
    EXPECT_EQ(test::refusal(schedule), "accepted") << name;
    test::expect_golden(
        text("docs/pictures/", file, ".svg"),
        render_svg(schedule, test::unit_times(schedule, test::kTransfer),
                   {.title = title}));
  }
}

}  // namespace
}  // namespace cohort
