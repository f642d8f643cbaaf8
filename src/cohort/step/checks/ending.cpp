// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/step/checks/checks.h"

namespace cohort {
namespace {

class Ending {
 public:
  Ending(const Schedule& schedule, const RoleView& role, const StepFacts& facts)
      : schedule_(schedule), role_(role), facts_(facts), commit_(find_commit()) {}

  void check(const CheckOptions& options) const {
    check_commit();
    const int loss = find_loss();
    const int norm = find(ActionKind::kNorm);
    const int vote = find(ActionKind::kVote);
    const int fold = find(ActionKind::kFoldBuffers);
    const bool elastic = (options.elastic || schedule_.elastic) && !facts_.forward_only;
    if (elastic && vote == kNone)
      role_.refuse("updates without a Vote; legal under elastic: one Vote before them");
    if (norm != kNone) check_after_sums(norm);
    if (vote != kNone) check_after_sums(vote);
    if (vote != kNone && norm != kNone)
      role_.require_before(norm, vote, "the norm is part of what is voted on");
    if (vote != kNone && loss != kNone)
      role_.require_before(loss, vote, "the loss is part of what is voted on");
    if (fold != kNone && !role_.all(ActionKind::kForward).empty())
      role_.require_before(role_.all(ActionKind::kForward).back(), fold,
                           "it makes the statistics that are folded");
    if (elastic && fold != kNone)
      role_.require_before(fold, vote, "whoever is cut off behind the vote needs it");
    for (int before : {loss, norm, vote})
      if (before != kNone)
        for (int update : role_.all(ActionKind::kUpdate))
          role_.require_before(before, update,
                               "no update before the step is known good");
  }

 private:
  int find_commit() const {
    const auto& commits = role_.all(ActionKind::kCommit);
    if (commits.empty()) role_.refuse("there is no Commit; legal: one, at the end");
    if (commits.size() > 1)
      role_.refuse(commits[1], text("was done already by action ", commits[0]));
    return commits[0];
  }

  void check_commit() const {
    if (commit_ + 1 != role_.size())
      role_.refuse(commit_ + 1, text("comes after the Commit (action ", commit_, ")"));
    std::vector<int> last(role_.lanes(), kNone);
    for (int i = 0; i < commit_; ++i) last[role_.at(i).lane] = i;
    for (int end : last)
      if (end != kNone)
        role_.require_before(end, commit_,
                             "the step must be done when it is committed");
  }

  int find(ActionKind kind) const {
    const auto& found = role_.all(kind);
    if (found.size() > 1)
      role_.refuse(found[1], text("was done already by action ", found[0]));
    const auto& needs = role_.at(commit_).needs;
    if (found.empty() && std::find(needs.begin(), needs.end(), kind) != needs.end())
      role_.refuse(commit_, text("needs a ", name_of(kind), ", and there is none"));
    return found.empty() ? kNone : found[0];
  }

  int find_loss() const {
    int loss = kNone;
    for (int i : role_.all(ActionKind::kReduce)) {
      if (role_.at(i).buckets[0] != kLossBucket) continue;
      if (loss != kNone) role_.refuse(i, text("was done already by action ", loss));
      loss = i;
    }
    if (loss == kNone) {
      if (schedule_.world() > 1 && !facts_.forward_only)
        role_.refuse("there is no Reduce of the loss; legal: one over all ranks");
      return kNone;
    }
    const int ranks = schedule_.size_of(*schedule_.group_of(role_.at(loss).lane));
    if (ranks != schedule_.world())
      role_.refuse(loss,
                   text("is over ", ranks, " ranks; legal: all ", schedule_.world()));
    for (int i : role_.all(ActionKind::kForward))
      if (role_.at(i).block + 1 == facts_.blocks)
        role_.require_before(i, loss, "it adds to the loss");
    return loss;
  }

  void check_after_sums(int action) const {
    for (ActionKind kind : {ActionKind::kBackward, ActionKind::kReduceScatter,
                            ActionKind::kReduce, ActionKind::kMirror})
      for (int i : role_.all(kind)) {
        const bool loss =
            kind == ActionKind::kReduce && role_.at(i).buckets[0] == kLossBucket;
        if (!loss) role_.require_before(i, action, "it is part of the whole gradient");
      }
  }

  const Schedule& schedule_;
  const RoleView& role_;
  const StepFacts& facts_;
  int commit_;
};

}  // namespace

void check_ending(const Schedule& schedule, const RoleView& role,
                  const StepFacts& facts, const CheckOptions& options) {
  Ending(schedule, role, facts).check(options);
}

}  // namespace cohort
