// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/rank_group.h"

#include <string.h>

#include <algorithm>

#include "cohort/core/error.h"

namespace cohort::process {
namespace {

// For SIGKILL to be carried out; a process stuck in the kernel takes longer.
constexpr std::chrono::seconds kKillLimit{10};

// One that a process which waits, and knows of nothing, may get as well.
bool is_for_all(int signal) {
  return signal == SIGKILL || signal == SIGSTOP || signal == SIGCONT;
}

}  // namespace

RankGroup::RankGroup(const RankPlan& plan, ZygoteHandle& zygote, AgentStream& out,
                     AgentStream& err, std::chrono::milliseconds rest_limit)
    : plan_(plan), zygote_(zygote), out_(out), err_(err), rest_limit_(rest_limit) {}

RankProcess& RankGroup::add(int index, int local_rank) {
  auto& process = processes_[index];
  process = std::make_unique<RankProcess>(plan_, zygote_, index, local_rank);
  return *process;
}

void RankGroup::start(RankProcess& process, SpawnText spawn, int link) {
  process.start(out_, err_, std::move(spawn), link);
}

void RankGroup::add_polls(std::vector<pollfd>& polls) const {
  for (const auto& [index, process] : processes_) process->add_polls(polls);
}

Clock::time_point RankGroup::next_deadline() const {
  Clock::time_point next = std::min(kill_at_, abandon_at_);
  for (const auto& [index, process] : processes_) {
    next = std::min(next, process->next_deadline());
    const auto since = process->resting_since();
    if (since && !suspended_ && !process->ended()) {
      next = std::min(next, *since + rest_limit_);
    }
  }
  return next;
}

void RankGroup::advance() {
  const auto now = Clock::now();
  for (const auto& [index, process] : processes_) {
    process->pump(now);
    end_frozen(*process, now);
  }
  if (now >= kill_at_) kill();
  if (now >= abandon_at_) lost();
}

void RankGroup::end_frozen(RankProcess& process, Clock::time_point now) {
  const auto since = process.resting_since();
  if (process.ended() || !since || suspended_ || now < *since + rest_limit_) return;
  process.give_up(
      text("stopped for ", rest_limit_.count() / 1000.0, " s, so it was killed"));
}

void RankGroup::handle(const Report& report) {
  const auto found = processes_.find(report.index);
  if (found == processes_.end()) return;
  RankProcess& process = *found->second;
  switch (report.kind) {
    case Report::kSpawned:
      process.started(report.pid);
      break;
    case Report::kNotSpawned:
      process.give_up(text("cannot fork: ", strerror(report.status)));
      process.end(1 << 8, report.time_ns, sent_);
      on_end(process);
      break;
    case Report::kExited:
      process.end(report.status, report.time_ns, sent_);
      on_end(process);
      break;
    case Report::kStopped:
      if (suspended_ || stopping_) break;
      process.rest(true);
      note(text(process.name(), " was stopped by ", signal_name(report.status),
                "; it is killed when it has rested ", rest_limit_.count() / 1000.0,
                " s, at the latest"));
      break;
    case Report::kContinued:
      process.rest(false);
      break;
  }
}

void RankGroup::lost() {
  stopping_ = true;
  for (const auto& [index, process] : processes_) {
    if (process->ended()) continue;
    process->ask_to_end();
    process->end(SIGKILL, wall_ns(), ~uint64_t{0});
    on_end(*process);
  }
}

void RankGroup::signal_running(int signal) {
  sent_ |= uint64_t{1} << signal;
  for (const auto& [index, process] : processes_) {
    if (process->ended() || (!hears(*process) && !is_for_all(signal))) continue;
    process->signal(signal);
  }
}

void RankGroup::stop(int signal) {
  if (stopping_) return;
  stopping_ = true;
  kill_at_ = Clock::now() + plan_.options.grace;
  for (const auto& [index, process] : processes_) process->ask_to_end();
  signal_running(signal);
  signal_running(SIGCONT);  // one that was stopped hears it too
}

void RankGroup::kill() {
  stopping_ = true;
  kill_at_ = Clock::time_point::max();
  abandon_at_ = std::min(abandon_at_, Clock::now() + kKillLimit);
  for (const auto& [index, process] : processes_) process->ask_to_end();
  signal_running(SIGKILL);
}

void RankGroup::suspend(bool suspended) {
  suspended_ = suspended;
  for (const auto& [index, process] : processes_) process->rest(false);
  signal_running(suspended ? SIGSTOP : SIGCONT);
}

bool RankGroup::done() const {
  return std::all_of(processes_.begin(), processes_.end(),
                     [](const auto& entry) { return entry.second->done(); });
}

int RankGroup::running() const {
  return static_cast<int>(
      std::count_if(processes_.begin(), processes_.end(), [](const auto& entry) {
        return !entry.second->ended() && !entry.second->is_spare();
      }));
}

std::vector<std::string> RankGroup::notices() { return std::exchange(notices_, {}); }

}  // namespace cohort::process
