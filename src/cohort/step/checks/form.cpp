// SPDX-License-Identifier: Apache-2.0
// What a list must be to be read at all: nothing here knows what a step means.
#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "cohort/core/error.h"
#include "cohort/step/checks/checks.h"
#include "cohort/step/slices.h"

namespace cohort {
namespace {

enum class Lane { kCompute, kGroup, kWorld, kLink };
enum class Names { kBlock, kBucket, kBucketOrLoss, kNothing, kBuckets, kAnything };

struct KindRule {
  ActionKind kind;
  Lane lane;
  Names names;
};

constexpr std::array<KindRule, 18> kRules = {{
    {ActionKind::kForward, Lane::kCompute, Names::kBlock},
    {ActionKind::kBackward, Lane::kCompute, Names::kBlock},
    {ActionKind::kRecompute, Lane::kCompute, Names::kBlock},
    {ActionKind::kGather, Lane::kGroup, Names::kBucket},
    {ActionKind::kFree, Lane::kCompute, Names::kBucket},
    {ActionKind::kReduce, Lane::kGroup, Names::kBucketOrLoss},
    {ActionKind::kReduceScatter, Lane::kGroup, Names::kBucket},
    {ActionKind::kReduceUpdate, Lane::kGroup, Names::kBucket},
    {ActionKind::kMirror, Lane::kGroup, Names::kBucket},
    {ActionKind::kNorm, Lane::kWorld, Names::kNothing},
    {ActionKind::kVote, Lane::kWorld, Names::kNothing},
    {ActionKind::kUpdate, Lane::kCompute, Names::kBucket},
    {ActionKind::kFoldBuffers, Lane::kWorld, Names::kNothing},
    {ActionKind::kCommit, Lane::kCompute, Names::kBuckets},
    {ActionKind::kBackwardInput, Lane::kCompute, Names::kBlock},
    {ActionKind::kBackwardWeight, Lane::kCompute, Names::kBlock},
    {ActionKind::kSend, Lane::kLink, Names::kAnything},
    {ActionKind::kRecv, Lane::kLink, Names::kAnything},
}};

constexpr int kMostWorld = 1 << 20;
constexpr size_t kMostGroups = 16;

bool contains(const std::vector<int>& numbers, int number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

const KindRule* rule_of(ActionKind kind) {
  for (const auto& rule : kRules)
    if (rule.kind == kind) return &rule;
  return nullptr;
}

// One role, read action by action.
class Form {
 public:
  Form(const Schedule& schedule, int role, int rounds)
      : schedule_(schedule),
        index_(role),
        role_(schedule.roles[role]),
        rounds_(rounds) {}

  void check() {
    for (size_t i = 0; i < role_.actions.size(); ++i) {
      at_ = static_cast<int>(i);
      const Action& action = role_.actions[i];
      const KindRule* rule = rule_of(action.kind);
      if (!rule)
        refuse("no generator writes this kind yet; it comes with a later release");
      check_lane(action, rule->lane);
      check_names(action, rule->names);
      check_needs(action);
      check_bytes(action);
      for (int wait : action.waits)
        if (wait < 0 || wait >= at_)
          refuse(text("waits for action ", wait, "; legal: an earlier one"), "R1");
      check_waits_before(action);
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& reason,
                           const std::string& rule = "form") const {
    refuse_role(schedule_, index_, at_, text(rule, ": ", reason));
  }

  void check_waits_before(const Action& action) const {
    for (int wait : action.waits_before)
      if (!schedule_.runs_ahead || wait < 0 ||
          wait >= static_cast<int>(role_.actions.size()))
        refuse(text("waits for action ", wait, " of the step before; legal: ",
                    schedule_.runs_ahead ? "one of this list"
                                         : "none, for that one has ended"),
               "R1");
  }

  void check_lane(const Action& action, Lane lane) const {
    const Channel::Kind legal = channel_of(action, lane);
    const bool there = action.lane >= 0 && action.lane < schedule_.lanes();
    if (!there || schedule_.channels[action.lane].kind != legal)
      refuse(text("is in lane ", action.lane, "; legal: ", lanes_of(legal)));
    for (const auto& call : action.calls)
      if (call.group < 0 || call.group >= static_cast<int>(schedule_.groups.size()))
        refuse(text("calls group ", call.group, "; legal: one of ",
                    schedule_.groups.size()));
    const Group* const group = schedule_.group_of(action.lane);
    if (group && schedule_.members(*group, role_.ranks[0]).empty())
      refuse(text("is a call of group ", group->name, ", of which rank ",
                  role_.ranks[0], " is no member"),
             "R4");
    if (lane != Lane::kWorld || !group) return;
    const int ranks = schedule_.size_of(*group);
    if (ranks != schedule_.world())
      refuse(text("is over group ", group->name, " of ", ranks, " ranks; legal: all ",
                  schedule_.world()));
  }

  // Where nobody has another shard, parameters are gathered from the host's memory.
  Channel::Kind channel_of(const Action& action, Lane lane) const {
    const bool alone =
        action.kind == ActionKind::kGather && schedule_.group_along(kDataAxes) == kNone;
    if (alone) return Channel::Kind::kCopy;
    if (lane == Lane::kLink) return Channel::Kind::kLink;
    const bool meets = schedule_.world() > 1 || !schedule_.groups.empty();
    if (lane == Lane::kGroup || (lane == Lane::kWorld && meets))
      return Channel::Kind::kGroup;
    return Channel::Kind::kCompute;
  }

  std::string lanes_of(Channel::Kind kind) const {
    std::string lanes;
    for (int lane = 0; lane < schedule_.lanes(); ++lane)
      if (schedule_.channels[lane].kind == kind)
        lanes += text(lanes.empty() ? "" : ", ", lane);
    if (!lanes.empty()) return lanes;
    return kind == Channel::Kind::kLink ? "none, for there is no link"
                                        : "none, for there is no group";
  }

  void check_names(const Action& action, Names names) const {
    if (names == Names::kAnything) return;
    const bool compute = names == Names::kBlock;
    if (compute != (action.block >= 0) || (!compute && action.block != kNone))
      refuse(compute ? "names no block" : "names a block; legal: none");
    const int most = compute ? role_.slices : rounds_;
    if (action.slice != kNone && (action.slice < 0 || action.slice >= most))
      refuse(text("is of slice ", action.slice, "; legal: 0 to ", most - 1));
    if (compute && action.slice == kNone) refuse("names no slice");
    if (compute) check_stage(action.block);
    const bool sliced = compute || action.kind == ActionKind::kGather ||
                        action.kind == ActionKind::kFree ||
                        action.kind == ActionKind::kReduce ||
                        action.kind == ActionKind::kReduceScatter ||
                        action.kind == ActionKind::kReduceUpdate;
    if (!sliced && action.slice != kNone) refuse("names a slice; legal: none");
    check_buckets(action, names);
  }

  void check_stage(int block) const {
    if (schedule_.stages.empty()) return;
    const int here = schedule_.mesh.coordinate(role_.ranks[0], Axis::kPipe);
    for (const auto& stage : schedule_.stages)
      if (stage.place == here && contains(stage.blocks, block)) return;
    refuse(
        text("is at place ", here, "; legal: where the stage of block ", block, " is"));
  }

  void check_buckets(const Action& action, Names names) const {
    const auto& buckets = action.buckets;
    const bool one = names == Names::kBucket || names == Names::kBucketOrLoss;
    if (one && buckets.size() != 1)
      refuse(text("names ", buckets.size(), " buckets; legal: one"));
    if (names == Names::kNothing && !buckets.empty())
      refuse("names a bucket; legal: none");
    const int least = names == Names::kBucketOrLoss ? kLossBucket : 0;
    for (size_t i = 0; i < buckets.size(); ++i)
      if (buckets[i] < least || (i > 0 && buckets[i] <= buckets[i - 1]))
        refuse(text("names bucket ", buckets[i], "; legal: ", least,
                    " and more, in ascending order"));
    if (one && buckets[0] == kLossBucket && action.slice != kNone)
      refuse("is of the loss and names a slice; legal: none");
  }

  void check_needs(const Action& action) const {
    for (ActionKind need : action.needs)
      if (action.kind != ActionKind::kCommit ||
          (need != ActionKind::kNorm && need != ActionKind::kVote &&
           need != ActionKind::kFoldBuffers && need != ActionKind::kMirror))
        refuse(text("needs ", name_of(need),
                    "; legal: Commit alone, and Norm, Vote, FoldBuffers or Mirror"));
  }

  void check_bytes(const Action& action) const {
    const int64_t most =
        (int64_t{1} << 60) / static_cast<int64_t>(role_.actions.size());
    for (int64_t bytes : {action.bytes, action.scratch})
      if (bytes < 0 || bytes > most)
        refuse(text("has ", bytes, " bytes; legal: 0 to ", most));
    for (const auto* accesses : {&action.reads, &action.writes})
      for (const auto& access : *accesses) check_access(action, access);
  }

  void check_access(const Action& action, const Access& access) const {
    if (access.buffer != kNone) check_buffer(action, access);
    const int64_t most = (int64_t{1} << 58) / (role_.actions.size() + 1);
    if (access.bytes < 0 || access.bytes > most)
      refuse(text("takes ", access.bytes, " bytes for ", access.value.text(),
                  "; legal: 0 to ", most));
  }

  // It is for such values, and large enough.
  void check_buffer(const Action& action, const Access& access) const {
    const auto buffers = static_cast<int>(schedule_.buffers.size());
    const auto what = [&] {
      return text("has ", access.value.text(), " in buffer ", access.buffer);
    };
    if (access.buffer < 0 || access.buffer >= buffers)
      refuse(text(what(), "; legal: one of ", buffers), "R3");
    const Buffer& buffer = schedule_.buffers[access.buffer];
    const auto legal = access.value.what == What::kLeaf    ? Buffer::Holds::kSlot
                       : access.value.what == What::kWhole ? Buffer::Holds::kGathered
                                                           : Buffer::Holds::kReceived;
    if (buffer.holds != legal)
      refuse(text(what(), ", which is for ", name_of(buffer.holds),
                  "; legal: ", name_of(legal)),
             "R3");
    const bool moves =
        action.kind == ActionKind::kRecv || action.kind == ActionKind::kGather;
    if (moves && action.bytes > buffer.bytes())
      refuse(text(what(), " of ", buffer.bytes(), " bytes; legal: at least ",
                  action.bytes),
             "R3");
    if (access.bytes != 0)
      refuse(text(what(), ", and bytes of its own; legal: either"), "R3");
  }

  const Schedule& schedule_;
  int index_;
  const Role& role_;
  int rounds_;
  int at_ = 0;
};

void check_groups(const Schedule& schedule) {
  if (schedule.groups.size() > kMostGroups)
    throw ConfigError(text("[step.check] ", schedule.groups.size(),
                           " groups; legal: at most ", kMostGroups));
  const int places = schedule.mesh.size(Axis::kPipe);
  for (const auto& group : schedule.groups) {
    for (size_t i = 0; i < group.places.size(); ++i)
      if (group.places[i] < 0 || group.places[i] >= places ||
          (i > 0 && group.places[i] <= group.places[i - 1]))
        throw ConfigError(text("[step.check] group ", group.name, " is at place ",
                               group.places[i], "; legal: of ", places,
                               " places some, in ascending order"));
  }
}

void check_channels(const Schedule& schedule) {
  const int places = schedule.mesh.size(Axis::kPipe);
  for (int lane = 0; lane < schedule.lanes(); ++lane) {
    const Channel& channel = schedule.channels[lane];
    const auto refuse = [&](const std::string& why) {
      throw ConfigError(text("[step.check] channel ", lane, " ", why));
    };
    if ((channel.kind == Channel::Kind::kCompute) != (lane == kComputeLane))
      refuse("computes, or does not; legal: the first alone");
    if (channel.kind == Channel::Kind::kGroup &&
        (channel.group < 0 ||
         channel.group >= static_cast<int>(schedule.groups.size())))
      refuse(text("is of group ", channel.group, "; legal: one of ",
                  schedule.groups.size()));
    const bool inside = channel.from >= 0 && channel.from < places && channel.to >= 0 &&
                        channel.to < places && channel.from != channel.to;
    if (channel.kind == Channel::Kind::kLink && !inside)
      refuse(text("is a link from place ", channel.from, " to ", channel.to,
                  "; legal: two of ", places));
  }
  if (schedule.channels.empty())
    throw ConfigError("[step.check] no channels; legal: one that computes, and more");
}

// As pipeline.cut gives them: blocks that follow one another.
void check_run(const Schedule& schedule, size_t number) {
  const auto& blocks = schedule.stages[number].blocks;
  if (blocks.empty())
    throw ConfigError(text("[step.check] stage ", number, " has no block; legal: one, "
                           "or several that follow one another"));
  for (size_t i = 1; i < blocks.size(); ++i)
    if (blocks[i] != blocks[i - 1] + 1)
      throw ConfigError(text("[step.check] stage ", number, " has block ", blocks[i],
                             " behind ", blocks[i - 1], "; legal: ",
                             blocks[i - 1] + 1));
  const auto named = static_cast<int>(schedule.blocks.size());
  if (blocks.front() < 0 || (named > 0 && blocks.back() >= named))
    throw ConfigError(text("[step.check] stage ", number, " has blocks ",
                           blocks.front(), " to ", blocks.back(),
                           "; legal: 0 or more, of ", named, " that have a name"));
}

// Each block is of one stage.
void check_stages(const Schedule& schedule) {
  const int places = schedule.mesh.size(Axis::kPipe);
  std::set<int> seen;
  for (size_t s = 0; s < schedule.stages.size(); ++s) {
    const Stage& stage = schedule.stages[s];
    if (stage.place < 0 || stage.place >= places)
      throw ConfigError(text("[step.check] stage ", s, " is at place ", stage.place,
                             "; legal: one of ", places));
    for (const int block : stage.blocks)
      if (!seen.insert(block).second)
        throw ConfigError(
            text("[step.check] block ", block, " is of several stages; legal: one"));
    check_run(schedule, s);
  }
}

void check_buffers(const Schedule& schedule) {
  constexpr int64_t kMost = int64_t{1} << 60;
  int64_t left = kMost;
  for (const auto& buffer : schedule.buffers)
    if (buffer.numel < 0 || (left -= buffer.bytes()) < 0)
      throw ConfigError(text("[step.check] buffers of more than ", kMost,
                             " bytes; legal: at most so many, all together"));
}

void check_ranks(const Schedule& schedule) {
  const int world = schedule.world();
  if (world < 1 || world > kMostWorld || schedule.roles.empty())
    throw ConfigError(text("[step.check] a world of ", world, " ranks and ",
                           schedule.roles.size(), " roles; legal: 1 to ", kMostWorld,
                           " ranks, and a role"));
  std::vector<bool> seen(world);
  for (const auto& role : schedule.roles)
    for (int rank : role.ranks) {
      if (rank < 0 || rank >= world || seen[rank])
        throw ConfigError(text("[step.check] rank ", rank,
                               " has two roles or is outside the world of ", world,
                               "; legal: one role per rank"));
      seen[rank] = true;
      const int slices = schedule.mesh.slices(rank, schedule.slices).count();
      if (role.slices != slices)
        throw ConfigError(text("[step.check] rank ", rank, " computes ", role.slices,
                               " slices; legal: ", slices, ", its part of ",
                               schedule.slices));
    }
  const auto gap = std::find(seen.begin(), seen.end(), false);
  if (gap != seen.end())
    throw ConfigError(text("[step.check] rank ", gap - seen.begin(), " of ", world,
                           " has no role; legal: one role per rank"));
}

}  // namespace

void check_form(const Schedule& schedule) {
  check_ranks(schedule);
  check_groups(schedule);
  check_channels(schedule);
  check_stages(schedule);
  check_buffers(schedule);
  int rounds = 1;
  for (const auto& role : schedule.roles) rounds = std::max(rounds, role.slices);
  for (size_t i = 0; i < schedule.roles.size(); ++i)
    Form(schedule, static_cast<int>(i), rounds).check();
}

}  // namespace cohort
