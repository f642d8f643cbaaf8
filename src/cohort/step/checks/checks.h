// SPDX-License-Identifier: Apache-2.0
// The parts of the checker, in the order in which they run. Each may rely on what those
// before it made certain.
#pragma once

#include <vector>

#include "cohort/step/checker.h"
#include "cohort/step/checks/role_view.h"
#include "cohort/step/schedule.h"

namespace cohort {

// What all roles agree on.
struct StepFacts {
  int blocks = 0;
  int buckets = 0;
  int rounds = 1;  // slices of the rank that has most
  bool forward_only = false;
  int shard_lane = kNone;              // the lane of Gather and ReduceScatter
  std::vector<std::vector<int>> uses;  // buckets, by block
  std::vector<bool> trained;           // by bucket: Commit says so
  std::vector<bool> sharded;           // by bucket: cut between steps, dropped by Free
  std::vector<bool> tied;  // by bucket: used at several places along the pipeline
  // A rank's parts of tensors are with neither a replica nor the next stage.
  bool parts_alone = false;

  // What a Mirror passes on: a shard of a sum, or the sum of parts.
  What handed_on() const { return parts_alone ? What::kPartial : What::kSum; }
};

// Ranks, groups, kinds, lanes, waits: what a list must be to be read at all.
void check_form(const Schedule& schedule);
StepFacts find_facts(const Schedule& schedule);

// R1: a value is written once, version after version. R2: an action that reads one
// comes after its writer, and before the one that makes the next. R3: of two actions on
// one buffer, one of which writes, one is surely first. Where steps run ahead, in two
// of them in a row.
void check_flow(const RoleView& role, const StepFacts& facts, bool runs_ahead);

// R2 also: what an action cannot do without is declared.
void check_declared(const RoleView& role, const StepFacts& facts);
// R12: of a block's backward in two parts, the weights' follows the inputs'.
void check_split(const RoleView& role);
// R10, R11, R13: parameters are whole when used, of one version for a slice, and new
// everywhere in the end.
void check_parameters(const RoleView& role, const StepFacts& facts);
// R10: what a forward leaves for a backward is used once; R13: statistics, and what
// else a commit needs.
void check_lives(const RoleView& role, const StepFacts& facts);
// R7 to R9, R12, R13: gradients, losses and states are made of all they should be,
// once and in order, and as far as needed before the vote.
void check_provenance(const Schedule& schedule, const RoleView& role,
                      const StepFacts& facts, const CheckOptions& options);

// R9 also: what only one place along the pipeline has is held a second time.
void check_second_copies(const Schedule& schedule, const CheckOptions& options);

// R4: a collective moves what there is of its bucket.
void check_amounts(const Schedule& schedule, const RoleView& role);
// R5: the transfers of a batch are one exchange.
void check_batches(const RoleView& role);
// R4 to R6: equal collectives in equal order, and nobody waits for ever.
void check_collectives(const Schedule& schedule, const CheckOptions& options);

RoleVolume count_volume(const Schedule& schedule, const Role& role);
RolePeak find_peak(const Schedule& schedule, const RoleView& role);

}  // namespace cohort
