// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/step/checks/checks.h"

namespace cohort {
namespace {

bool is_of_bucket(What what) {
  return what == What::kLeaf || what == What::kPartial || what == What::kSum ||
         what == What::kMirrored || what == What::kWhole || what == What::kState;
}

bool computes(const Action& action) { return action.block != kNone; }

// Numbers are dense: none may be far above how often any is named.
void find_sizes(const Schedule& schedule, StepFacts& facts) {
  int64_t blocks = 0, buckets = 0;
  size_t forwards = 0, named = 0;
  for (const auto& role : schedule.roles) {
    facts.rounds = std::max(facts.rounds, role.slices);
    for (const auto& action : role.actions) {
      blocks = std::max(blocks, int64_t{action.block} + 1);
      forwards += action.kind == ActionKind::kForward;
      named += action.buckets.size();
      for (int bucket : action.buckets)
        buckets = std::max(buckets, int64_t{bucket} + 1);
      for (const auto* accesses : {&action.reads, &action.writes})
        for (const auto& access : *accesses)
          if (is_of_bucket(access.value.what))
            buckets = std::max(buckets, int64_t{access.value.of} + 1);
    }
  }
  if (blocks == 0) throw ConfigError("[step.check] no Forward; legal: one and more");
  if (blocks > static_cast<int64_t>(forwards))
    throw ConfigError(text("[step.check] ", blocks, " blocks and ", forwards,
                           " Forwards; legal: one for each block and slice"));
  if (buckets > static_cast<int64_t>(named))
    throw ConfigError(text("[step.check] bucket ", buckets - 1,
                           " is named; legal: numbers from 0 without gaps"));
  const auto listed = static_cast<int64_t>(schedule.buckets.size());
  if (listed > 0 && buckets > listed)
    throw ConfigError(
        text("[step.check] bucket ", buckets - 1, " is named; legal: one of ", listed));
  facts.blocks = static_cast<int>(blocks);
  facts.buckets = static_cast<int>(buckets);
}

// A block uses the same parameters wherever it is computed.
void find_uses(const Schedule& schedule, StepFacts& facts) {
  facts.uses.resize(facts.blocks);
  std::vector<bool> known(facts.blocks);
  for (size_t r = 0; r < schedule.roles.size(); ++r) {
    const auto& actions = schedule.roles[r].actions;
    for (size_t i = 0; i < actions.size(); ++i) {
      if (!computes(actions[i])) continue;
      auto& uses = facts.uses[actions[i].block];
      if (!known[actions[i].block]) uses = actions[i].buckets;
      known[actions[i].block] = true;
      if (uses != actions[i].buckets)
        refuse_role(schedule, static_cast<int>(r), static_cast<int>(i),
                    "form: uses other buckets than the block does elsewhere");
    }
  }
}

void find_trained(const Schedule& schedule, StepFacts& facts) {
  facts.trained.resize(facts.buckets);
  const std::vector<int>* first = nullptr;
  for (size_t r = 0; r < schedule.roles.size(); ++r) {
    const auto& actions = schedule.roles[r].actions;
    for (size_t i = 0; i < actions.size(); ++i) {
      if (actions[i].kind != ActionKind::kCommit) continue;
      const bool one_place = schedule.mesh.size(Axis::kPipe) == 1;
      if (one_place && first && *first != actions[i].buckets)
        refuse_role(schedule, static_cast<int>(r), static_cast<int>(i),
                    "form: updates other buckets than another role");
      first = &actions[i].buckets;
      for (int bucket : actions[i].buckets) facts.trained[bucket] = true;
    }
  }
}

// Buckets that ranks at several places along the pipeline use.
void find_tied(const Schedule& schedule, StepFacts& facts) {
  std::vector<int> place(facts.buckets, kNone);
  facts.tied.resize(facts.buckets);
  for (const auto& role : schedule.roles) {
    const int here = schedule.mesh.coordinate(role.ranks[0], Axis::kPipe);
    for (const auto& action : role.actions)
      for (int bucket : action.buckets) {
        if (action.block == kNone) continue;
        if (place[bucket] != kNone && place[bucket] != here) facts.tied[bucket] = true;
        place[bucket] = here;
      }
  }
}

void find_shards(const Schedule& schedule, StepFacts& facts) {
  facts.sharded.resize(facts.buckets);
  for (size_t r = 0; r < schedule.roles.size(); ++r) {
    const auto& actions = schedule.roles[r].actions;
    for (size_t i = 0; i < actions.size(); ++i) {
      const Action& action = actions[i];
      if (action.kind == ActionKind::kFree) facts.sharded[action.buckets[0]] = true;
      if (action.kind != ActionKind::kGather &&
          action.kind != ActionKind::kReduceScatter)
        continue;
      if (facts.shard_lane == kNone) facts.shard_lane = action.lane;
      if (facts.shard_lane != action.lane)
        refuse_role(schedule, static_cast<int>(r), static_cast<int>(i),
                    text("form: is in lane ", action.lane, "; legal: lane ",
                         facts.shard_lane, ", as the others that cut or gather"));
    }
  }
}

}  // namespace

StepFacts find_facts(const Schedule& schedule) {
  StepFacts facts;
  const int world = schedule.world();
  facts.parts_alone = world > 1 && schedule.mesh.size(Axis::kTensor) == world;
  find_sizes(schedule, facts);
  find_uses(schedule, facts);
  find_trained(schedule, facts);
  find_shards(schedule, facts);
  find_tied(schedule, facts);
  facts.forward_only = true;
  for (const auto& role : schedule.roles)
    for (const auto& action : role.actions)
      if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kUpdate ||
          action.kind == ActionKind::kRecompute ||
          action.kind == ActionKind::kBackwardInput)
        facts.forward_only = false;
  return facts;
}

}  // namespace cohort
