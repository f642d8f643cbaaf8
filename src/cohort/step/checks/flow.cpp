// SPDX-License-Identifier: Apache-2.0
// R1 to R3: values and memory, as the actions declare them. Nothing here asks how waits
// were derived.
#include <map>
#include <tuple>

#include "cohort/core/error.h"
#include "cohort/step/checks/checks.h"

namespace cohort {
namespace {

// Two steps in a row, of which the second need not wait for all of the first.
Role as_run(const Role& role) {
  Role run = role;
  const auto length = static_cast<int>(role.actions.size());
  for (Action action : role.actions) {
    for (int& wait : action.waits) wait += length;
    action.waits.insert(action.waits.end(), action.waits_before.begin(),
                        action.waits_before.end());
    run.actions.push_back(std::move(action));
  }
  return run;
}

class Flow {
 public:
  Flow(const RoleView& role, const RoleView& run, const StepFacts& facts)
      : role_(role), run_(run), facts_(facts) {}

  void check() {
    for (at_ = 0; at_ < run_.size(); ++at_) {
      if (at_ == role_.size()) begin_next_step();
      const Action& action = run_.at(at_);
      for (const auto& access : action.reads) read(access);
      for (const auto& access : action.writes) write(access);
    }
  }

 private:
  // What is in a place now, or the newest version of a value: what wrote it, and what
  // has read it since.
  struct Held {
    Value value;
    int buffer = kNone;
    int writer = kNone;
    std::vector<int> readers;
    bool is_new = false;  // it was written in this step
  };

  // The memory stays in use; what was made of given values is given to the next step.
  void begin_next_step() {
    std::erase_if(newest_,
                  [](const auto& one) { return is_made_anew(one.first.what); });
    for (auto& [first, held] : newest_) {
      held.value = first;
      held.is_new = false;
    }
    for (auto& [buffer, held] : buffers_) held.is_new = false;
  }

  bool is_there_at_first(const Value& value) const {
    const bool cut = value.what == What::kWhole && value.of >= 0 &&
                     value.of < facts_.buckets && facts_.sharded[value.of];
    return is_given(value) && !cut;
  }

  void read(const Access& access) {
    Held& newest = newest_of(access.value);
    if (newest.value != access.value ||
        (!newest.is_new && !is_there_at_first(access.value)))
      refuse(text("R2: reads ", access.value.text(), ", which ",
                  later_or_never(access.value)));
    require_after(newest.writer, "R2",
                  [&] { return text("reads ", access.value.text()); });
    if (newest.writer != kNone && newest.buffer != access.buffer)
      refuse(text("R2: reads ", access.value.text(),
                  " where it is not: ", where(newest.buffer)));
    newest.readers.push_back(at_);
    if (access.buffer == kNone) return;
    Held& held = buffers_[access.buffer];
    if (held.is_new && held.value != access.value)
      refuse(text("R2: reads ", access.value.text(), " from buffer ", access.buffer,
                  ", where ", held.value.text(), " is since ", shown(held.writer)));
    held.readers.push_back(at_);
  }

  static std::string where(int buffer) {
    return buffer == kNone ? "it has memory of its own"
                           : text("it is in buffer ", buffer);
  }

  std::string later_or_never(const Value& value) const {
    const int here = at_ % role_.size();
    for (int i = 0; i < role_.size(); ++i)
      for (const auto& access : role_.at(i).writes)
        if (access.value == value)
          return i < here ? text("is no longer there: ",
                                 shown(newest_.at(value.any_version()).writer),
                                 " made ", newest_.at(value.any_version()).value.text())
                          : text("action ", i, " writes later");
    return "nobody writes";
  }

  void write(const Access& access) {
    const auto what = [&] { return text("writes ", access.value.text()); };
    Held& newest = newest_of(access.value);
    for (const auto& read : run_.at(at_).reads)
      if (read.value.any_version() == access.value.any_version() &&
          read.buffer != access.buffer)
        refuse(text("R3: changes ", read.value.text(), " in place, and ",
                    where(read.buffer)));
    const int next =
        !newest.is_new && !is_given(newest.value) ? 0 : newest.value.version + 1;
    if (access.value.version != next)
      refuse(text("R1: ", what(), ", where version ", next,
                  " is next; legal: each version once"));
    replace(newest, access, "R2", what);
    if (access.buffer != kNone)
      replace(buffers_[access.buffer], access, "R3",
              [&] { return text(what(), " to buffer ", access.buffer); });
  }

  // All actions that used what was there must be done with it. `what` gives the words
  // for it: they cost more than all checks, and most actions need none.
  template <typename Words>
  void replace(Held& held, const Access& access, const char* rule, const Words& what) {
    for (const int reader : held.readers) require_after(reader, rule, what);
    require_after(held.writer, rule, what);
    held = {access.value, access.buffer, at_, {}, true};
  }

  Held& newest_of(const Value& value) {
    const Value first = value.any_version();
    return newest_.try_emplace(first, Held{.value = first}).first->second;
  }

  template <typename Words>
  void require_after(int earlier, const char* rule, const Words& what) const {
    if (earlier == kNone || earlier == at_ || run_.before(earlier, at_)) return;
    refuse(text(rule, ": ", what(), " and does not wait for ", shown(earlier)));
  }

  std::string shown(int earlier) const {
    const bool is_before = earlier < role_.size() && at_ >= role_.size();
    return text(action_text(role_.role(), earlier % role_.size()),
                is_before ? " of the step before" : "");
  }

  [[noreturn]] void refuse(const std::string& reason) const {
    role_.refuse(at_ % role_.size(), reason);
  }

  const RoleView& role_;
  const RoleView& run_;
  const StepFacts& facts_;
  int at_ = 0;
  std::map<Value, Held> newest_;  // by the value's first version
  std::map<int, Held> buffers_;
};

using BlockSlice = std::pair<int, int>;

void require_one_before(const RoleView& role, int weight,
                        const std::map<BlockSlice, int>& inputs) {
  const auto it = inputs.find({role.at(weight).block, role.at(weight).slice});
  if (it == inputs.end())
    role.refuse(weight, "R12: comes without a BackwardInput of its block and slice");
  if (!role.before(it->second, weight))
    role.refuse(weight, text("R12: comes before its BackwardInput (action ", it->second,
                             "), or does not wait for it"));
}

}  // namespace

void check_split(const RoleView& role) {
  std::map<BlockSlice, int> inputs, weights;
  const auto place = [&](int i) {
    return BlockSlice(role.at(i).block, role.at(i).slice);
  };
  for (int i : role.all(ActionKind::kBackwardInput)) inputs[place(i)] = i;
  for (int i : role.all(ActionKind::kBackwardWeight)) {
    require_one_before(role, i, inputs);
    weights[place(i)] = i;
  }
  for (const auto& [where, input] : inputs)
    if (!weights.contains(where))
      role.refuse(input, "R12: is never followed by a BackwardWeight");
  for (int i : role.all(ActionKind::kBackward))
    if (inputs.contains(place(i)))
      role.refuse(i, text("R12: does once more what action ", inputs[place(i)],
                          " begins; legal: Backward, or its two parts"));
}

namespace {

// What may be done again: to move, gather and drop a value. And a sum knows what is in
// it.
bool may_come_again(ActionKind kind) {
  return kind == ActionKind::kGather || kind == ActionKind::kFree ||
         kind == ActionKind::kSend || kind == ActionKind::kRecv ||
         kind == ActionKind::kReduce || kind == ActionKind::kReduceScatter;
}

void check_once(const RoleView& role) {
  using Deed = std::tuple<ActionKind, int, int, int, std::vector<int>>;
  std::map<Deed, int> done;
  for (int i = 0; i < role.size(); ++i) {
    const Action& action = role.at(i);
    if (may_come_again(action.kind)) continue;
    const auto [first, is_new] = done.try_emplace(
        {action.kind, action.lane, action.block, action.slice, action.buckets}, i);
    if (!is_new) role.refuse(i, text("R1: was done already by action ", first->second));
  }
}

}  // namespace

void check_flow(const RoleView& role, const StepFacts& facts, bool runs_ahead) {
  check_once(role);
  if (!runs_ahead) return Flow(role, role, facts).check();
  const Role twice = as_run(role.role());
  Flow(role, RoleView(twice, role.index(), role.lanes()), facts).check();
}

}  // namespace cohort
