// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/csv_old_copies.h"

#include <algorithm>
#include <map>

namespace cohort::csv {
namespace {

// One role, and which of its actions go.
class CopiedRole {
 public:
  CopiedRole(Role& role, const std::vector<OldCopy>& copies) : role_(role) {
    for (const auto& copy : copies) {
      dropped_.push_back(static_cast<int>(copy.action));
      forget_values(copy);
    }
    for (auto& [value, versions] : gone_) std::ranges::sort(versions);
  }

  void drop() {
    std::map<int, int> last;  // by lane: action
    for (int i = 0; i < static_cast<int>(role_.actions.size()); ++i) {
      Action& action = role_.actions[i];
      Waits waits;
      for (const int wait : action.waits) add(waits, wait);
      // A lane is in order: what came behind a copy came behind what that waited for.
      const auto before = last.find(action.lane);
      if (before != last.end() && (is_dropped(i) || is_dropped(before->second)))
        add(waits, before->second);
      last[action.lane] = i;
      if (is_dropped(i))
        instead_[i] = std::move(waits);
      else
        action.waits = numbers_of(waits);
    }
    for (auto& action : role_.actions) {
      Waits waits;
      for (const int wait : action.waits_before) add(waits, wait);
      action.waits_before = numbers_of(waits);
      for (auto* accesses : {&action.reads, &action.writes})
        for (auto& access : *accesses) rename(access.value);
    }
    erase(role_.actions);
  }

  template <typename Row>
  void erase(std::vector<Row>& rows) const {
    int index = 0;
    std::erase_if(rows, [&](const Row&) { return is_dropped(index++); });
  }

 private:
  using Waits =
      std::map<int, int>;  // by lane: the last action, which is after the rest

  bool is_dropped(int action) const {
    return std::ranges::binary_search(dropped_, action);
  }

  // What is no action is kept, for the checker to refuse.
  void add(Waits& waits, int action) const {
    const auto copy = instead_.find(action);
    const bool there = action < static_cast<int>(role_.actions.size());
    if (copy == instead_.end()) {
      int& last = waits.try_emplace(there ? role_.actions[action].lane : kNone, action)
                      .first->second;
      last = std::max(last, action);
    } else {
      for (const auto& [lane, other] : copy->second) add(waits, other);
    }
  }

  std::vector<int> numbers_of(const Waits& waits) const {
    std::vector<int> numbers;
    for (const auto& [lane, action] : waits) {
      const auto behind = std::ranges::lower_bound(dropped_, action);
      numbers.push_back(action - static_cast<int>(behind - dropped_.begin()));
    }
    std::ranges::sort(numbers);
    return numbers;
  }

  // Versions that it made are no more, but for new weights: its Update makes them.
  void forget_values(const OldCopy& dropped) {
    const Action& copy = role_.actions[dropped.action];
    Action* const update = dropped.fetches ? update_before(dropped.action) : nullptr;
    for (const auto& access : copy.writes)
      if (update && access.value.what == What::kWhole)
        hand_over(copy, access, *update);
      else
        gone_[access.value.any_version()].push_back(access.value.version);
  }

  Action* update_before(size_t index) {
    const auto& buckets = role_.actions[index].buckets;
    while (index-- > 0)
      if (Action& action = role_.actions[index];
          action.kind == ActionKind::kUpdate && action.buckets == buckets)
        return &action;
    return nullptr;
  }

  static void hand_over(const Action& copy, const Access& made, Action& update) {
    for (const auto& access : copy.reads)
      if (access.value.what == What::kWhole) update.reads.push_back(access);
    update.writes.push_back(made);
  }

  void rename(Value& value) const {
    const auto gone = gone_.find(value.any_version());
    if (gone == gone_.end()) return;
    const auto behind = std::ranges::upper_bound(gone->second, value.version);
    value.version -= static_cast<int>(behind - gone->second.begin());
  }

  Role& role_;
  std::vector<int> dropped_;
  std::map<int, Waits> instead_;            // by copy
  std::map<Value, std::vector<int>> gone_;  // versions
};

}  // namespace

bool is_old_copy(std::string_view kind) { return kind == "Offload" || kind == "Fetch"; }

void drop_copies(ScheduleFile& file, std::vector<std::vector<OldMemory>>& memory,
                 const std::vector<OldCopy>& copies) {
  std::map<size_t, std::vector<OldCopy>> by_role;
  for (const auto& copy : copies) by_role[copy.role].push_back(copy);
  for (const auto& [r, those] : by_role) {
    CopiedRole role(file.schedule.roles[r], those);
    role.drop();
    role.erase(memory[r]);
    if (!file.times.empty()) role.erase(file.times[r]);
  }
}

}  // namespace cohort::csv
