// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/testing_pipeline.h"

#include <algorithm>
#include <deque>
#include <map>

#include "cohort/core/error.h"
#include "cohort/step/checks/role_view.h"
#include "cohort/step/declare.h"
#include "cohort/step/derive.h"

namespace cohort::test {
namespace {

constexpr int64_t kActBytes = 1000, kBucketBytes = 4000;
constexpr AxisSet kSameExperts = {Axis::kReplicate, Axis::kExpertCut};

// Channels of a pipeline: compute, collectives of each group, and for each pair of
// neighbours a link for outputs and one for gradients.
struct Lanes {
  int all = kNone, data = kNone, tied = kNone, same_experts = kNone;
  int tensor_group = kNone, context_group = kNone, expert_group = kNone;
  std::map<std::pair<int, int>, int> acts, grads;  // by from, to
};

bool has_experts(const Pipeline& pipe, int block) {
  return pipe.experts > 1 && block % 2 == 1;
}

int stages_of(const Pipeline& pipe) { return static_cast<int>(pipe.ends.size()); }

class PlaceWriter {
 public:
  PlaceWriter(const Pipeline& pipe, const Lanes& lanes, int place, int slices)
      : pipe_(pipe),
        lanes_(lanes),
        place_(place),
        slices_(slices),
        declarer_(facts()) {}

  std::vector<Action> write() {
    for (const Turn& turn : pipe_.order(pipe_, place_, slices_)) take(turn);
    finish();
    return std::move(actions_);
  }

 private:
  ListFacts facts() const {
    ListFacts facts{.blocks = pipe_.ends.back()};
    for (const int bucket : buckets_here()) facts.trained.insert(bucket);
    for (int b = 0; b < facts.blocks && pipe_.statistics; ++b)
      facts.statistics.insert(b);
    return facts;
  }
  int begin(int stage) const { return stage == 0 ? 0 : pipe_.ends[stage - 1]; }
  int end(int stage) const { return pipe_.ends[stage]; }
  int last_block() const { return pipe_.ends.back() - 1; }
  int bucket_of(int block) const {
    return pipe_.tied && block == last_block() ? 0 : block;
  }
  int place_of(int stage) const { return stage % pipe_.places; }

  void take(const Turn& turn) {
    const bool forward = turn.kind == Turn::Kind::kForward;
    if (turn.kind == Turn::Kind::kWeight) {
      for (int b = end(turn.stage) - 1; b >= begin(turn.stage); --b)
        backward(ActionKind::kBackwardWeight, b, turn.slice);
      return;
    }
    if (forward) {
      if (turn.stage > 0) recv(What::kAct, turn.stage - 1, turn.stage, turn.slice);
      for (int b = begin(turn.stage); b < end(turn.stage); ++b)
        this->forward(b, turn.slice);
      if (turn.stage + 1 < stages_of(pipe_))
        send(What::kAct, turn.stage, turn.stage + 1, turn.slice);
      return;
    }
    const auto kind = turn.kind == Turn::Kind::kInput ? ActionKind::kBackwardInput
                                                      : ActionKind::kBackward;
    if (turn.stage + 1 < stages_of(pipe_))
      recv(What::kActGrad, turn.stage + 1, turn.stage, turn.slice);
    for (int b = end(turn.stage) - 1; b >= begin(turn.stage); --b) {
      if (pipe_.recompute) recompute(b, turn.slice);
      backward(kind, b, turn.slice);
    }
    if (turn.stage > 0) send(What::kActGrad, turn.stage, turn.stage - 1, turn.slice);
  }

  // The value between two stages: the output of the block before the border, or its
  // gradient.
  int border(int from, int to) const { return end(std::min(from, to)) - 1; }

  Action transfer(ActionKind kind, What what, int from, int to, int slice) const {
    const auto& links = what == What::kAct ? lanes_.acts : lanes_.grads;
    return {.kind = kind,
            .lane = links.at({place_of(from), place_of(to)}),
            .slice = slice,
            .bytes = kActBytes};
  }

  void send(What what, int from, int to, int slice) {
    if (place_of(from) == place_of(to)) return;
    Action action = transfer(ActionKind::kSend, what, from, to, slice);
    declarer_.versions().read(action, what, border(from, to), slice);
    actions_.push_back(action);
  }

  // What comes in takes turns in a few buffers, as many as slices are under way.
  void recv(What what, int from, int to, int slice) {
    if (place_of(from) == place_of(to)) return;
    Action action = transfer(ActionKind::kRecv, what, from, to, slice);
    const int turns = slices_ + 1;
    const int ring = (what == What::kAct ? 0 : 1) * stages_of(pipe_) + to;
    declarer_.versions().make(action, what, border(from, to), slice,
                              ring * turns + slice % turns);
    actions_.push_back(action);
  }

  Action compute(ActionKind kind, int block, int slice) const {
    Action action{.kind = kind, .block = block, .slice = slice};
    action.buckets = {bucket_of(block)};
    if (kind == ActionKind::kBackwardWeight) return action;
    using Op = CallOp;
    const auto call = [&](int group, Op op, int times) {
      for (int i = 0; i < times; ++i)
        action.calls.push_back({.group = group, .op = op, .bytes = kActBytes});
    };
    if (pipe_.tensor > 1) call(lanes_.tensor_group, Op::kAllReduce, 2);
    // Keys and values of the other parts of a sequence come, and their gradients go.
    if (pipe_.context > 1)
      call(lanes_.context_group,
           is_backward(kind) ? Op::kReduceScatter : Op::kAllGather, 1);
    // Tokens go to their experts, and come back.
    if (has_experts(pipe_, block)) call(lanes_.expert_group, Op::kAllToAll, 2);
    return action;
  }

  void forward(int block, int slice) {
    add(compute(ActionKind::kForward, block, slice));
  }
  void recompute(int block, int slice) {
    add(compute(ActionKind::kRecompute, block, slice));
  }
  void backward(ActionKind kind, int block, int slice) {
    add(compute(kind, block, slice));
  }

  void add(Action action) {
    declarer_.declare(action);
    actions_.push_back(std::move(action));
  }

  std::vector<int> buckets_here() const {
    std::vector<int> buckets;
    for (int stage = place_; stage < stages_of(pipe_); stage += pipe_.places)
      for (int b = begin(stage); b < end(stage); ++b) buckets.push_back(bucket_of(b));
    std::sort(buckets.begin(), buckets.end());
    buckets.erase(std::unique(buckets.begin(), buckets.end()), buckets.end());
    return buckets;
  }

  bool has_last_stage() const { return place_of(stages_of(pipe_) - 1) == place_; }
  bool is_tied(int bucket) const {
    return pipe_.tied && bucket == 0 && (place_ == 0 || has_last_stage());
  }

  void finish() {
    const auto buckets = buckets_here();
    if (lanes_.all != kNone) reduce(kLossBucket, lanes_.all);
    for (int bucket : buckets) {
      const int lane = has_experts(pipe_, bucket) ? lanes_.same_experts : lanes_.data;
      if (lane != kNone) reduce(bucket, lane);
      if (is_tied(bucket)) reduce(bucket, lanes_.tied);
    }
    if (pipe_.statistics)
      add({.kind = ActionKind::kFoldBuffers, .lane = lane_of_all()});
    if (pipe_.elastic)
      add({.kind = ActionKind::kVote, .lane = lane_of_all(), .bytes = 8});
    for (int bucket : buckets) add({.kind = ActionKind::kUpdate, .buckets = {bucket}});
    add({.kind = ActionKind::kCommit, .buckets = buckets});
  }

  // Where all ranks meet, or this one is alone.
  int lane_of_all() const { return lanes_.all == kNone ? kComputeLane : lanes_.all; }

  void reduce(int bucket, int lane) {
    add({.kind = ActionKind::kReduce,
         .lane = lane,
         .buckets = {bucket},
         .bytes = bucket == kLossBucket ? 48 : kBucketBytes});
  }

  const Pipeline& pipe_;
  const Lanes& lanes_;
  int place_, slices_;
  Declarer declarer_;
  std::vector<Action> actions_;
};

void batch_transfers(std::vector<Action>& actions) {
  int batches = 0;
  for (auto send = actions.begin(); send != actions.end(); ++send) {
    if (send->kind != ActionKind::kSend) continue;
    const auto next = std::find_if(send + 1, actions.end(), is_transfer);
    if (next == actions.end() || next->kind != ActionKind::kRecv) continue;
    send->batch = next->batch = batches++;
    std::rotate(send + 1, next, next + 1);
  }
}

Lanes make_channels(const Pipeline& pipe, Schedule& schedule) {
  Lanes lanes;
  schedule.channels = {{.kind = Channel::Kind::kCompute}};
  const auto add_group = [&](Group group) {
    if (schedule.size_of(group) < 2) return static_cast<int>(kNone);
    schedule.groups.push_back(std::move(group));
    schedule.channels.push_back(
        {.kind = Channel::Kind::kGroup,
         .group = static_cast<int>(schedule.groups.size()) - 1});
    return schedule.lanes() - 1;
  };
  const AxisSet data = pipe.context > 1 ? kDataAxes | kContextAxis : kDataAxes;
  lanes.all = add_group({"all", AxisSet{Axis::kPipe, Axis::kTensor} | data});
  // Where all are data parallel, one group serves.
  const bool one = schedule.mesh.size(data) == schedule.world();
  lanes.data = one ? lanes.all : add_group({"dp", data});
  if (pipe.experts > 1) lanes.same_experts = add_group({"edp", kSameExperts});
  if (pipe.tied) lanes.tied = add_group({"tied", {Axis::kPipe}, {0, pipe.places - 1}});
  const auto add_inner = [&](Group group) {
    schedule.groups.push_back(std::move(group));
    return static_cast<int>(schedule.groups.size()) - 1;
  };
  if (pipe.tensor > 1) lanes.tensor_group = add_inner({"tp", kTensorAxis});
  if (pipe.context > 1) lanes.context_group = add_inner({"cp", kContextAxis});
  if (pipe.experts > 1) lanes.expert_group = add_inner({"ep", {Axis::kExpert}});
  const auto link = [&](std::map<std::pair<int, int>, int>& links, int from, int to) {
    if (from == to || links.contains({from, to})) return;
    schedule.channels.push_back({.kind = Channel::Kind::kLink, .from = from, .to = to});
    links[{from, to}] = schedule.lanes() - 1;
  };
  for (int s = 0; s + 1 < stages_of(pipe); ++s) {
    const int here = s % pipe.places, next = (s + 1) % pipe.places;
    link(lanes.acts, here, next);
    link(lanes.grads, next, here);
  }
  return lanes;
}

}  // namespace

std::vector<Turn> gpipe(const Pipeline& pipe, int place, int slices) {
  std::vector<Turn> turns;
  for (int s = place; s < stages_of(pipe); s += pipe.places)
    for (int m = 0; m < slices; ++m) turns.push_back({Turn::Kind::kForward, s, m});
  for (int s = stages_of(pipe) - 1; s >= 0; --s)
    for (int m = 0; s % pipe.places == place && m < slices; ++m)
      turns.push_back({Turn::Kind::kBackward, s, m});
  return turns;
}

std::vector<Turn> one_forward_one_backward(const Pipeline& pipe, int place,
                                           int slices) {
  std::vector<Turn> turns;
  const int ahead = std::min(slices, pipe.places - place);
  for (int m = 0; m < ahead; ++m) turns.push_back({Turn::Kind::kForward, place, m});
  for (int m = 0; m < slices; ++m) {
    turns.push_back({Turn::Kind::kBackward, place, m});
    if (m + ahead < slices) turns.push_back({Turn::Kind::kForward, place, m + ahead});
  }
  return turns;
}

std::vector<Turn> interleaved(const Pipeline& pipe, int place, int slices) {
  std::vector<Turn> turns;
  for (int first = 0; first < slices; first += pipe.places) {
    const int end = std::min(slices, first + pipe.places);
    for (int s = place; s < stages_of(pipe); s += pipe.places)
      for (int m = first; m < end; ++m) turns.push_back({Turn::Kind::kForward, s, m});
    for (int s = stages_of(pipe) - 1; s >= 0; --s)
      for (int m = first; s % pipe.places == place && m < end; ++m)
        turns.push_back({Turn::Kind::kBackward, s, m});
  }
  return turns;
}

std::vector<Turn> zero_bubble(const Pipeline& pipe, int place, int slices) {
  std::vector<Turn> turns;
  std::deque<int> owed;  // slices whose weights wait
  for (const Turn& turn : one_forward_one_backward(pipe, place, slices)) {
    if (turn.kind == Turn::Kind::kForward) {
      turns.push_back(turn);
      continue;
    }
    turns.push_back({Turn::Kind::kInput, turn.stage, turn.slice});
    owed.push_back(turn.slice);
    if (static_cast<int>(owed.size()) <= place) continue;
    turns.push_back({Turn::Kind::kWeight, turn.stage, owed.front()});
    owed.pop_front();
  }
  for (int m : owed) turns.push_back({Turn::Kind::kWeight, place, m});
  return turns;
}

Schedule make(const Pipeline& pipe) {
  Schedule schedule{
      .mesh = Mesh({pipe.places, 1, pipe.replicas, pipe.context, pipe.tensor},
                   pipe.experts),
      .slices = pipe.slices,
      .elastic = pipe.elastic,
      .runs_ahead = pipe.runs_ahead};
  const Lanes lanes = make_channels(pipe, schedule);
  for (int b = 0; b < pipe.ends.back(); ++b) {
    schedule.blocks.push_back(text("block ", b));
    schedule.buckets.push_back({.blocks = {b}, .numel = kBucketBytes / 4});
    if (has_experts(pipe, b)) schedule.buckets.back().sum = kSameExperts;
  }
  for (int s = 0; s < stages_of(pipe); ++s) {
    schedule.stages.push_back({.place = s % pipe.places});
    for (int b = s == 0 ? 0 : pipe.ends[s - 1]; b < pipe.ends[s]; ++b)
      schedule.stages.back().blocks.push_back(b);
  }
  if (pipe.tied) schedule.buckets[0].sum = kDataAxes | AxisSet{Axis::kPipe};
  std::map<std::pair<int, int>, std::vector<int>> ranks;  // by place and slices
  for (int rank = 0; rank < schedule.world(); ++rank)
    ranks[{schedule.mesh.coordinate(rank, Axis::kPipe),
           schedule.mesh.slices(rank, pipe.slices).count()}]
        .push_back(rank);
  for (auto& [key, list] : ranks) {
    Role role{.ranks = list, .slices = key.second};
    role.actions = PlaceWriter(pipe, lanes, key.first, key.second).write();
    if (pipe.batched) batch_transfers(role.actions);
    derive_waits(role.actions, schedule.lanes(), schedule.runs_ahead);
    schedule.roles.push_back(std::move(role));
  }
  const int most = *std::max_element(pipe.ends.begin(), pipe.ends.end());
  const int turns = schedule.mesh.rounds(pipe.slices) + 1;
  schedule.buffers.assign(static_cast<size_t>(2 * most * turns),
                          {.holds = Buffer::Holds::kReceived, .numel = kActBytes});
  return schedule;
}

}  // namespace cohort::test
