// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cohort/step/schedule.h"
#include "cohort/step/step_times.h"
#include "cohort/step/testing_pipeline.h"

// For tests: pipelines whose pictures are in docs/pictures/.
namespace cohort::test {

struct DrawnPipeline {
  const char* file;
  const char* title;
  Pipeline pipe;
};

DrawnPipeline eight_of_32();             // one forward, one backward
DrawnPipeline zero_bubble_of_tensors();  // with calls inside blocks
DrawnPipeline interleaved_stages();      // with recompute
std::vector<DrawnPipeline> drawn_pipelines();

// A forward takes a unit, a backward two, and each of its halves one. A transfer takes
// so much of a unit.
StepTimes unit_times(Schedule schedule, double transfer, double unit_seconds = 1e-3);
inline constexpr double kTransfer = 0.05;

// What pictures of measured schedules were measured with (pipeline_bubbles_test):
// blocks that wait so long for each part of a slice. And what a transfer is foretold to
// take.
inline constexpr double kTimedBlock = 0.02;
inline constexpr double kTimedTransfer = 20e-6;

std::string drawn_pipeline(const DrawnPipeline& example);

}  // namespace cohort::test
