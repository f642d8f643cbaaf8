// SPDX-License-Identifier: Apache-2.0
// R2: an action declares what its kind cannot do without.
#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/step/checks/checks.h"

namespace cohort {
namespace {

class Declared {
 public:
  Declared(const RoleView& role, const StepFacts& facts) : role_(role), facts_(facts) {}

  void check() {
    for (at_ = 0; at_ < role_.size(); ++at_) check(role_.at(at_));
  }

 private:
  void check(const Action& action) const {
    const int bucket = action.buckets.size() == 1 ? action.buckets[0] : kNone;
    switch (action.kind) {
      case ActionKind::kForward:
      case ActionKind::kRecompute:
        return check_forward(action);
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
        return check_backward(action);
      case ActionKind::kGather:
        require_read(action, {What::kState, bucket});
        return require_written(action, {What::kWhole, bucket});
      case ActionKind::kFree:
        return require_written(action, {What::kWhole, bucket});
      case ActionKind::kReduce:
      case ActionKind::kReduceScatter:
        if (bucket != kLossBucket) require_written(action, {What::kSum, bucket});
        return check_leaves(action, bucket);
      case ActionKind::kMirror:
        require_read(action, {facts_.handed_on(), bucket});
        return require_written(action, {What::kMirrored, bucket});
      case ActionKind::kReduceUpdate:
        check_leaves(action, bucket);
        return require_written(action, {What::kState, bucket});
      case ActionKind::kUpdate:
        return require_written(action, {What::kState, bucket});
      default:
        return;
    }
  }

  static bool has(const std::vector<Access>& accesses, const Value& value) {
    return std::any_of(accesses.begin(), accesses.end(),
                       [&](const Access& a) { return a.value.any_version() == value; });
  }
  void require_read(const Action& action, const Value& value) const {
    if (!has(action.reads, value))
      role_.refuse(at_, text("R2: does not read ", value.text()));
  }
  void require_written(const Action& action, const Value& value) const {
    if (!has(action.writes, value))
      role_.refuse(at_, text("R2: does not write ", value.text()));
  }

  // A call for one slice takes that one's gradients.
  void check_leaves(const Action& action, int bucket) const {
    for (const auto* accesses : {&action.reads, &action.writes})
      for (const auto& access : *accesses)
        if (access.value.what == What::kLeaf &&
            access.value.any_version() != Value{What::kLeaf, bucket, action.slice})
          role_.refuse(at_, text("R2: uses ", access.value.text(), "; legal: ",
                                 Value{What::kLeaf, bucket, action.slice}.text()));
  }

  void check_forward(const Action& action) const {
    const bool first = action.block == 0;
    require_read(action, {first ? What::kInput : What::kAct,
                          first ? kNone : action.block - 1, action.slice});
    for (int bucket : action.buckets) require_read(action, {What::kWhole, bucket});
    const bool again = action.kind == ActionKind::kRecompute;
    if (again) require_read(action, {What::kFlight, action.block, action.slice});
    require_written(action,
                    {again ? What::kFlight : What::kAct, action.block, action.slice});
    if (!again && action.block + 1 == facts_.blocks)
      require_written(action, {What::kLoss, kNone, action.slice});
  }

  void check_backward(const Action& action) const {
    require_read(action, {What::kFlight, action.block, action.slice});
    require_read(action, {What::kAct, action.block, action.slice});
    if (action.block + 1 < facts_.blocks)
      require_read(action, {What::kActGrad, action.block, action.slice});
    for (int bucket : action.buckets) require_read(action, {What::kWhole, bucket});
    if (action.block > 0)
      require_written(action, {What::kActGrad, action.block - 1, action.slice});
    if (action.kind == ActionKind::kBackwardInput)
      require_written(action, {What::kDeferred, action.block, action.slice});
  }

  const RoleView& role_;
  const StepFacts& facts_;
  int at_ = 0;
};

}  // namespace

void check_declared(const RoleView& role, const StepFacts& facts) {
  Declared(role, facts).check();
}

}  // namespace cohort
