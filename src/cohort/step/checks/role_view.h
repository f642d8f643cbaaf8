// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/step/schedule.h"

namespace cohort {

// "0-3;6": ranks in ascending order.
std::string ranks_text(const std::vector<int>& ranks);

// "action 12 Backward block 3 slice 0".
std::string action_text(const Role& role, int action);

// Whether it moves a value between two places along the pipeline.
inline bool is_transfer(const Action& action) {
  return action.kind == ActionKind::kSend || action.kind == ActionKind::kRecv;
}

// A role with the order that its lanes and waits make certain, and a way to refuse it.
class RoleView {
 public:
  // Actions must wait for earlier ones only and lie in lanes below `lanes`.
  RoleView(const Role& role, int index, int lanes);

  const Role& role() const { return role_; }
  int index() const { return index_; }
  int size() const { return static_cast<int>(role_.actions.size()); }
  const Action& at(int action) const { return role_.actions[action]; }

  // Whether `a` is done when `b` begins, whatever the timing.
  bool before(int a, int b) const {
    return a < b && clock(b)[at(a).lane] >= position_[a];
  }
  // By lane: how many of its actions are done when `action` has begun, itself included.
  const int* clock(int action) const {
    return clocks_.data() + static_cast<size_t>(action) * lanes_;
  }
  int position(int action) const { return position_[action]; }  // in its lane, from 1
  int lanes() const { return lanes_; }

  // The actions of a kind, in order.
  const std::vector<int>& all(ActionKind kind) const {
    return by_kind_[static_cast<size_t>(kind)];
  }

  [[noreturn]] void refuse(int action, const std::string& reason) const;
  [[noreturn]] void refuse(const std::string& reason) const;  // the role as a whole
  // Refuses `b` unless `a` is surely done before it.
  void require_before(int a, int b, const char* why) const;

 private:
  const Role& role_;
  int index_;
  int lanes_;
  std::vector<int> position_;
  std::vector<int> clocks_;
  std::vector<std::vector<int>> by_kind_;
};

[[noreturn]] void refuse_role(const Schedule& schedule, int role, int action,
                              const std::string& reason);

}  // namespace cohort
