// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "cohort/launch/rank_group.h"

namespace cohort::process {

// The ranks of this node, from their start to their end, once.
class FixedRanks : public RankGroup {
 public:
  FixedRanks(const RankPlan& plan, ZygoteHandle& zygote, AgentStream& out,
             AgentStream& err, int number);

  void start();
  Clock::time_point next_deadline() const override;

  bool any_failed() const { return !failed_.empty(); }
  // A rank failed, and the others may be told to stop. Where it only says that it lost
  // a peer, that peer's death gets a moment to be seen: once a signal is sent, a death
  // of the same signal tells nothing.
  bool should_stop() const;

  // After done(): first cause first. Empty if no rank failed by itself.
  std::vector<Failure> failures() const;
  // The first failure seen so far; the cause unless an earlier one turns up.
  Failure first_failure() const { return failed_.front()->failure(); }
  // The code all ranks ended with by themselves, if it was one.
  std::optional<int> common_code() const;
  // A body ended with "stopped on request".
  bool stopped_on_request() const;

 private:
  void on_end(RankProcess& process) override;
  void end_stopped();
  const RankProcess* first_cause() const;
  const RankProcess* cause_behind(const RankProcess* first) const;

  const RankPlan& plan_;
  int number_;
  std::vector<const RankProcess*> failed_;  // in the order seen
  Clock::time_point first_failed_{};
};

}  // namespace cohort::process
