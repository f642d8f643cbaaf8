// SPDX-License-Identifier: Apache-2.0
// Pictures of the schedules that `pipeline.schedule` names: as they are foretold, and
// as they ran, with blocks that wait for a timer. COHORT_UPDATE_PICTURES=1 makes
// pipeline_bubbles_test write what it measures, and this test draw it.
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/step/generator.h"
#include "cohort/step/picture/renderer.h"
#include "cohort/step/picture/testing_stage_picture.h"
#include "cohort/step/schedule_csv.h"
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
                      .deferred_bytes = 24'000'000,
                      .cost = 1});
  return generate(blocks, {.pp = 4},
                  {.slices = 8, .pipeline = parse_pipeline({.schedule = name})});
}

// What is done in which order, whatever it is done with.
std::string order_of(const Schedule& schedule) {
  std::string out;
  for (const auto& role : schedule.roles)
    for (const auto& action : role.actions)
      out += text(name_of(action.kind), " ", action.lane, " ", action.block, " ",
                  action.slice, "\n");
  return out;
}

std::string source_path(const std::string& file) {
  const char* const source = std::getenv("COHORT_SOURCE");
  EXPECT_NE(source, nullptr) << "run through ctest";
  return text(source ? source : ".", "/", file);
}

TEST(SchedulePictures, AreOfWhatIsGeneratedAndOfWhatRan) {
  for (const auto& [name, file, title] :
       {std::tuple("gpipe", "schedule_gpipe", "gpipe: pp=4, 8 slices"),
        std::tuple("1f1b", "schedule_1f1b", "1f1b: pp=4, 8 slices"),
        std::tuple("interleaved", "schedule_interleaved",
                   "interleaved: pp=4, two stages at each place, 8 slices"),
        std::tuple("zero-bubble", "schedule_zero_bubble",
                   "zero-bubble: pp=4, 8 slices")}) {
    const Schedule schedule = four_places(name);
    EXPECT_EQ(test::refusal(schedule), "accepted") << name;
    const ScheduleFile ran =
        from_csv(read_file(source_path(text("docs/pictures/", file, ".csv"))));
    EXPECT_EQ(order_of(ran.schedule), order_of(schedule)) << name;
    ASSERT_EQ(ran.times.size(), schedule.roles.size()) << name;
    const StepTimes foretold = test::unit_times(
        schedule, test::kTimedTransfer / test::kTimedBlock, test::kTimedBlock);
    test::expect_golden(
        text("docs/pictures/", file, ".svg"),
        render_svg(schedule, foretold, {.title = title, .measured = ran.times}));
  }
}

}  // namespace
}  // namespace cohort
