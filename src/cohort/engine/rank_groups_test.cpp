// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/rank_groups.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "cohort/nn/language_models.h"
#include "cohort/step/generator.h"
#include "support/forwarding_communicator.h"
#include "support/ranks.h"

namespace cohort {
namespace {

class SplitCounter final : public test::ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  std::unique_ptr<Communicator> split(int color) override {
    ++splits;
    return ForwardingCommunicator::split(color);
  }
  int splits = 0;
};

// The first and the last block share a parameter.
Schedule schedule_of(const Layout& layout, bool interleaved = false) {
  const Chain chain =
      make_gpt({.vocab = 32, .context = 4, .width = 16, .depth = 16, .heads = 2},
               {.tensor = {.size = layout.tp}});
  return generate(
      specs_of(chain), layout,
      {.slices = 8 * layout.dp,
       .pipeline = parse_pipeline({.schedule = interleaved ? "interleaved" : "1f1b"})});
}

// A word of the sender, and of the lane: the link reaches that rank, and is no other's.
void expect_to_reach(const Schedule& schedule, const RankChannels& channels, int lane,
                     int rank) {
  const Channel& channel = schedule.channels[lane];
  const Mesh& mesh = schedule.mesh;
  const auto [pair, peer] = channels.link(lane);
  const bool sends = mesh.coordinate(rank, Axis::kPipe) == channel.from;
  const int sender = mesh.with(rank, Axis::kPipe, channel.from);
  const int word = 1000 * lane + sender;
  const Transfer transfer{peer, at::full({1}, sends ? word : -1, at::kInt)};
  pair->exchange(std::span(&transfer, sends ? 1 : 0),
                 std::span(&transfer, sends ? 0 : 1))
      .wait();
  EXPECT_EQ(pair->size(), 2);
  EXPECT_EQ(transfer.tensor.item<int>(), word) << schedule.name_of_lane(lane);
}

void expect_to_sum_members(const Schedule& schedule, const RankChannels& channels,
                           int lane, int rank) {
  const auto members = schedule.members(*schedule.group_of(lane), rank);
  if (members.empty()) return;
  int64_t sum = 0;
  for (const int member : members) sum += member;
  Tensor all = at::full({1}, rank, at::kLong);
  channels.tied(lane).all_reduce(all, ReduceOp::kSum).wait();
  EXPECT_EQ(all.item<int64_t>(), sum);
}

void expect_channels(const Schedule& schedule, int splits) {
  test::run_local_ranks(schedule.world(), 0, [&](Communicator& comm) {
    SplitCounter counter(comm);
    const RankChannels channels(schedule, counter);
    EXPECT_EQ(counter.splits, splits);
    const int here = schedule.mesh.coordinate(comm.rank(), Axis::kPipe);
    for (int lane = 0; lane < schedule.lanes(); ++lane) {
      const Channel& channel = schedule.channels[lane];
      if (channel.kind == Channel::Kind::kLink &&
          (here == channel.from || here == channel.to))
        expect_to_reach(schedule, channels, lane, comm.rank());
      const Group* const group = schedule.group_of(lane);
      if (group && !group->places.empty())
        expect_to_sum_members(schedule, channels, lane, comm.rank());
    }
    channels.connect(at::kCPU);
  });
}

// Four for links, in one of which the first place and the last sum what they share, if
// their number is even; one for each place's data-parallel ranks.
TEST(RankChannels, OfAPipelineAreMadeByAsManyCallsAtAnyDepth) {
  test::run_in_child([] {
    expect_channels(schedule_of({.pp = 4}), 5);
    expect_channels(schedule_of({.pp = 8}), 5);
    expect_channels(schedule_of({.dp = 2, .pp = 4}), 5);
    expect_channels(schedule_of({.pp = 5}), 6);
  });
}

// Links round the ring, whose places are an odd number or an even one.
TEST(RankChannels, OfARingAreMadeByFewCalls) {
  test::run_in_child([] {
    expect_channels(schedule_of({.pp = 3}, /*interleaved=*/true), 8);
    expect_channels(schedule_of({.pp = 4}, /*interleaved=*/true), 6);
  });
}

}  // namespace
}  // namespace cohort
