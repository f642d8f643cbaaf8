// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/fixed_ranks.h"

#include <sys/wait.h>

#include <algorithm>

#include "cohort/core/exit_code.h"

namespace cohort::process {
namespace {

// How much later than its peers' consequences a rank's death may be seen, in ns.
constexpr int64_t kDeathLimit = 1'000'000'000;
// How long the others go on when a rank has only lost a peer.
constexpr std::chrono::milliseconds kEchoLimit{200};

}  // namespace

FixedRanks::FixedRanks(const RankPlan& plan, ZygoteHandle& zygote, AgentStream& out,
                       AgentStream& err, int number)
    : RankGroup(plan, zygote, out, err, plan.options.stopped_limit),
      plan_(plan),
      number_(number) {}

void FixedRanks::start() {
  for (int i = 0; i < plan_.options.ranks; ++i) {
    RankProcess& process = add(i, i);
    SpawnText spawn;
    spawn.variables = rank_variables(
        plan_.world, i, {number_, plan_.options.max_restarts}, process.error_path());
    RankGroup::start(process, std::move(spawn));
  }
}

Clock::time_point FixedRanks::next_deadline() const {
  const Clock::time_point next = RankGroup::next_deadline();
  if (failed_.empty() || stopping()) return next;
  return std::min(next, first_failed_ + kEchoLimit);
}

void FixedRanks::on_end(RankProcess& process) {
  const bool ours = process.asked_to_end() && !process.killed_by_others();
  if (process.is_fine() || ours) return;
  if (failed_.empty()) first_failed_ = Clock::now();
  failed_.push_back(&process);
  if (process.is_echo()) end_stopped();
}

// What a rank has lost may be there, and stand still.
void FixedRanks::end_stopped() {
  for (const auto& [index, process] : processes_)
    if (!process->ended() && process->resting_since())
      process->give_up("stopped while other ranks waited for it, so it was killed");
}

bool FixedRanks::should_stop() const {
  if (failed_.empty() || stopping()) return false;
  const bool known =
      std::any_of(failed_.begin(), failed_.end(),
                  [](const RankProcess* process) { return !process->is_echo(); });
  return known || Clock::now() >= first_failed_ + kEchoLimit;
}

// The first one seen is the cause, unless another rank's own report shows that it
// failed before: it may only have taken longer to die.
const RankProcess* FixedRanks::first_cause() const {
  const RankProcess* cause = failed_.front();
  ErrorReport earliest = cause->report();
  for (const auto& [index, process] : processes_) {
    const ErrorReport report = process->report();
    if (report.message.empty() || report.latest_ns >= earliest.earliest_ns) continue;
    cause = process.get();
    earliest = report;
  }
  return cause_behind(cause);
}

// Peers may notice a rank's end, and end themselves, before its end or its report is
// seen here. So what can be no consequence of another rank's failure goes first: the
// death by a signal from outside, and for ranks of ours that lost a peer, any failure
// of another kind; one that stood still has said nothing.
const RankProcess* FixedRanks::cause_behind(const RankProcess* first) const {
  if (first->killed_from_outside()) return first;
  const RankProcess* cause = first;
  int64_t earliest = first->ended_ns() + kDeathLimit;
  for (const auto& [index, process] : processes_) {
    const bool own = process->killed_by_others() || process->given_up() ||
                     (!process->is_echo() && !process->report().message.empty());
    if (!process->killed_from_outside() && !(first->is_echo() && own)) continue;
    if (process->ended_ns() >= earliest) continue;
    cause = process.get();
    earliest = process->ended_ns();
  }
  return cause;
}

std::vector<Failure> FixedRanks::failures() const {
  if (failed_.empty()) return {};
  const RankProcess* cause = first_cause();
  std::vector<Failure> failures{cause->failure()};
  for (const RankProcess* process : failed_) {
    if (process != cause) failures.push_back(process->failure());
  }
  return failures;
}

std::optional<int> FixedRanks::common_code() const {
  std::optional<int> code;
  for (const auto& [index, process] : processes_) {
    if (WIFSIGNALED(process->status())) return std::nullopt;
    if (code && *code != process->code()) return std::nullopt;
    code = process->code();
  }
  return code;
}

bool FixedRanks::stopped_on_request() const {
  return plan_.options.body &&
         std::any_of(processes_.begin(), processes_.end(), [](const auto& entry) {
           return entry.second->code() == kExitStopped;
         });
}

}  // namespace cohort::process
