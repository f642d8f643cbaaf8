// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/picture/testing_stage_picture.h"

#include <set>

#include "cohort/step/picture/renderer.h"
#include "cohort/step/simulator.h"

namespace cohort::test {
namespace {

std::vector<int> even_stages(int stages, int blocks) {
  std::vector<int> ends;
  for (int s = 1; s <= stages; ++s) ends.push_back(s * blocks);
  return ends;
}

// A block keeps its activations from forward to backward, half of them to the
// backward of its weights. Ranks hold a state.
void give_memory(Schedule& schedule) {
  constexpr int64_t kKept = 48'000'000, kState = 90'000'000;
  std::set<int> buckets;
  for (auto& role : schedule.roles)
    for (auto& action : role.actions) {
      for (auto& access : action.writes) {
        if (access.value.what == What::kFlight && action.kind == ActionKind::kForward)
          access.bytes = kKept;
        if (access.value.what == What::kDeferred) access.bytes = kKept / 2;
      }
      if (action.kind == ActionKind::kCommit)
        buckets.insert(action.buckets.begin(), action.buckets.end());
    }
  for (const int bucket : buckets)
    schedule.buffers.push_back(
        {.holds = Buffer::Holds::kWhole, .bucket = bucket, .numel = kState});
}

}  // namespace

DrawnPipeline eight_of_32() {
  return {"pipeline.svg",
          "One forward, one backward: pp=8, 32 slices",
          {.places = 8,
           .slices = 32,
           .ends = even_stages(8, 1),
           .order = one_forward_one_backward}};
}

DrawnPipeline zero_bubble_of_tensors() {
  return {"zero_bubble.svg",
          "Zero bubble: pp=4, dp=2, tp=2, 12 slices per rank",
          {.places = 4,
           .replicas = 2,
           .tensor = 2,
           .slices = 24,
           .ends = even_stages(4, 2),
           .order = zero_bubble}};
}

DrawnPipeline interleaved_stages() {
  return {"interleaved.svg",
          "Interleaved: pp=4, two stages each, 8 slices, recompute",
          {.places = 4,
           .slices = 8,
           .ends = even_stages(8, 2),
           .recompute = true,
           .order = interleaved}};
}

std::vector<DrawnPipeline> drawn_pipelines() {
  return {eight_of_32(), zero_bubble_of_tensors(), interleaved_stages()};
}

StepTimes unit_times(Schedule schedule, double transfer, double unit_seconds) {
  CostTable costs;
  const double unit = unit_seconds;
  costs.blocks.assign(schedule.blocks.size(),
                      {{.fixed = unit}, {.fixed = 2 * unit}, {.fixed = unit}});
  costs.links["*"] = {.latency = transfer * unit};
  costs.update = {.latency = transfer * unit};
  for (auto& role : schedule.roles)
    for (auto& action : role.actions)
      if (action.kind == ActionKind::kBackwardInput ||
          action.kind == ActionKind::kBackwardWeight)
        action.kind = ActionKind::kForward;
  return simulate(schedule, costs).times;
}

std::string drawn_pipeline(const DrawnPipeline& example) {
  Schedule schedule = make(example.pipe);
  give_memory(schedule);
  return render_svg(schedule, unit_times(schedule, kTransfer),
                    {.title = example.title});
}

}  // namespace cohort::test
