// SPDX-License-Identifier: Apache-2.0
// For tests: a step by its name, in the hands of whoever breaks it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/step/derive.h"
#include "cohort/step/testing_pipeline.h"
#include "cohort/step/testing_schedule.h"

namespace cohort::test {

class Broken {
 public:
  explicit Broken(const std::string& name) {
    for (const auto& one : right_pipelines())
      if (one.name == name) schedule_ = make(one.pipe);
    if (schedule_.roles.empty()) ADD_FAILURE() << "no " << name;
  }

  Role& role(int r) { return schedule_.roles[r]; }
  Schedule& schedule() { return schedule_; }

  // The first such action; of any block and slice, or of those.
  int find(int r, ActionKind kind, int block = kNone, int slice = kNone) {
    const auto& actions = role(r).actions;
    for (size_t i = 0; i < actions.size(); ++i)
      if (actions[i].kind == kind && (block == kNone || actions[i].block == block) &&
          (slice == kNone || actions[i].slice == slice))
        return static_cast<int>(i);
    ADD_FAILURE() << "no " << name_of(kind);
    return 0;
  }
  int find_last(int r, ActionKind kind) {
    const auto& actions = role(r).actions;
    for (size_t i = actions.size(); i-- > 0;)
      if (actions[i].kind == kind) return static_cast<int>(i);
    ADD_FAILURE() << "no " << name_of(kind);
    return 0;
  }
  int find_lane(const std::string& group) {
    for (int lane = 0; lane < schedule_.lanes(); ++lane)
      if (schedule_.name_of_lane(lane) == group) return lane;
    ADD_FAILURE() << "no lane of " << group;
    return kComputeLane;
  }
  Action& at(int r, int i) { return role(r).actions[i]; }

  // What is left waits as before for what it needs.
  Broken& remove(int r, int i) {
    role(r).actions.erase(role(r).actions.begin() + i);
    return derive(r);
  }
  Broken& move(int r, int from, int to) {
    auto& actions = role(r).actions;
    const Action action = actions[from];
    actions.erase(actions.begin() + from);
    actions.insert(actions.begin() + to, action);
    return derive(r);
  }
  Broken& insert(int r, int i, const Action& action) {
    role(r).actions.insert(role(r).actions.begin() + i, action);
    return derive(r);
  }
  Broken& exchange(int r, int i, int j) {
    std::swap(role(r).actions[i], role(r).actions[j]);
    return derive(r);
  }
  Broken& derive(int r) {
    derive_waits(role(r).actions, schedule_.lanes(), schedule_.runs_ahead);
    return *this;
  }
  Broken& forget(std::vector<Access>& accesses, What what) {
    std::erase_if(accesses, [&](const Access& a) { return a.value.what == what; });
    return *this;
  }

 private:
  Schedule schedule_;
};

using Kind = ActionKind;

// The k-th Recv or Send of a role that moves such values.
inline int transfer(Broken& step, int r, Kind kind, What what, int k = 0) {
  const auto& actions = step.role(r).actions;
  for (size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].kind != kind) continue;
    const auto& moved = kind == Kind::kSend ? actions[i].reads : actions[i].writes;
    if (moved[0].value.what == what && k-- == 0) return static_cast<int>(i);
  }
  ADD_FAILURE() << "no " << name_of(kind) << " of " << name_of(what);
  return 0;
}

// What one Recv brings in lies where another's is.
inline void share_buffer(Broken& step, int r, int first, int second) {
  const int to = step.at(r, first).writes[0].buffer;
  const int from = step.at(r, second).writes[0].buffer;
  for (auto& action : step.role(r).actions)
    for (auto* accesses : {&action.reads, &action.writes})
      for (auto& access : *accesses)
        if (access.buffer == from) access.buffer = to;
}

// The first place sends its first output only when it has got something back.
inline void hold_back(Broken& step, int recv) {
  step.move(0, recv, transfer(step, 0, Kind::kSend, What::kAct, 0));
  const int send = transfer(step, 0, Kind::kSend, What::kAct, 0);
  step.at(0, send).waits.push_back(send - 1);
}

// Exchanges the weights' parts of a slice and the next, whose inputs' parts are done.
inline void exchange_weights(Broken& step, int r, int block, int slice) {
  Action& a = step.at(r, step.find(r, Kind::kBackwardWeight, block, slice));
  Action& b = step.at(r, step.find(r, Kind::kBackwardWeight, block, slice + 1));
  std::swap(a.slice, b.slice);
  std::swap(a.reads[0], b.reads[0]);
  step.derive(r);
}

// The update of a bucket comes earlier, and needs no gradient for that.
inline void update_early(Broken& step, int r, int before, int bucket) {
  const auto is_of_state = [](const Access& access) {
    return access.value.what == What::kState || access.value.what == What::kWhole;
  };
  auto& actions = step.role(r).actions;
  const auto found = std::ranges::find_if(actions, [&](const Action& action) {
    return action.kind == Kind::kUpdate && action.buckets == std::vector{bucket};
  });
  for (auto action = actions.begin() + before; action != found; ++action)
    for (auto* accesses : {&action->reads, &action->writes})
      for (auto& access : *accesses)
        if (is_of_state(access) && access.value.of == bucket) ++access.value.version;
  std::erase_if(found->reads, [&](const Access& read) { return !is_of_state(read); });
  step.move(r, static_cast<int>(found - actions.begin()), before);
}

struct BrokenStep {
  const char* rule;
  const char* what;
  const char* step;
  void (*breaks)(Broken& step);
};

// Each is refused by the rule it breaks; at least four of each rule.
inline void expect_refused(const std::vector<BrokenStep>& all, size_t rules) {
  std::map<std::string, int> tried;
  for (const auto& one : all) {
    Broken step(one.step);
    one.breaks(step);
    EXPECT_THAT(refusal(step.schedule()),
                testing::HasSubstr(text(": ", one.rule, ": ")))
        << one.step << ": " << one.what;
    ++tried[one.rule];
  }
  EXPECT_EQ(tried.size(), rules);
  for (const auto& [rule, count] : tried) EXPECT_GE(count, 4) << rule;
}

}  // namespace cohort::test
