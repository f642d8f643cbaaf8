// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/derive.h"

#include <algorithm>
#include <functional>
#include <map>
#include <unordered_map>
#include <utility>

namespace cohort {
namespace {

// What only one action at a time may change: a buffer, or a value, of which there is
// one version at a time.
struct Thing {
  int buffer = kNone;
  Value value;

  bool operator==(const Thing&) const = default;
};

struct ThingHash {
  size_t operator()(const Thing& thing) const {
    auto hash = static_cast<size_t>(thing.value.what);
    for (const int part : {thing.buffer, thing.value.of, thing.value.slice})
      hash = hash * 1'000'003 + static_cast<size_t>(part - kNone);
    return hash;
  }
};

// Which actions have used each thing so far.
class Uses {
 public:
  int writer_of(const Access& access) const { return users(value_of(access)).writer; }

  // Earlier actions that must be done before this one, in any order, some of them
  // twice.
  std::vector<int> needed_by(const Action& action) const {
    std::vector<int> needed;
    for (const auto& access : action.reads) needed.push_back(writer_of(access));
    for (const auto& access : action.writes) {
      add_users(value_of(access), needed);
      if (access.buffer != kNone) add_users({.buffer = access.buffer}, needed);
    }
    std::erase(needed, kNone);
    return needed;
  }

  void add(int index, const Action& action) {
    for (const auto& access : action.reads) {
      users_[value_of(access)].readers.push_back(index);
      if (access.buffer != kNone)
        users_[{.buffer = access.buffer}].readers.push_back(index);
    }
    for (const auto& access : action.writes) {
      users_[value_of(access)] = {index, {}};
      if (access.buffer != kNone) users_[{.buffer = access.buffer}] = {index, {}};
    }
  }

  // What has new memory in each step has not been used in that one.
  void begin_next_step() {
    std::erase_if(users_, [](const auto& use) {
      return use.first.buffer == kNone && is_made_anew(use.first.value.what);
    });
  }

 private:
  struct Users {
    int writer = kNone;
    std::vector<int> readers;  // since then
  };

  static Thing value_of(const Access& access) {
    return {.value = access.value.any_version()};
  }

  const Users& users(const Thing& thing) const {
    static const Users nobody;
    const auto it = users_.find(thing);
    return it == users_.end() ? nobody : it->second;
  }

  void add_users(const Thing& thing, std::vector<int>& all) const {
    const auto& [writer, readers] = users(thing);
    all.push_back(writer);
    all.insert(all.end(), readers.begin(), readers.end());
  }

  std::unordered_map<Thing, Users, ThingHash> users_;
};

// What is certainly done before an action begins: its lane does one after another, and
// what the actions before it have waited for.
class Past {
 public:
  explicit Past(int lanes) : lanes_(static_cast<size_t>(lanes)), ends_(lanes_, kNone) {}

  // Those of `needed` that the next action of a lane must wait for beside `waits`.
  // Later ones first: what they have waited for need not be named.
  std::vector<int> missing(std::vector<int> needed, int lane,
                           std::vector<int> waits) const {
    std::sort(needed.begin(), needed.end(), std::greater<>());
    std::vector<int> missing;
    for (const int earlier : needed) {
      if (has(earlier, lane, waits)) continue;
      waits.push_back(earlier);
      missing.push_back(earlier);
    }
    std::reverse(missing.begin(), missing.end());
    return missing;
  }

  void add(int lane, const std::vector<int>& waits) {
    const size_t at = clocks_.size();
    clocks_.resize(at + lanes_, 0);
    const auto join = [&](int earlier) {
      for (size_t l = 0; l < lanes_; ++l)
        clocks_[at + l] = std::max(clocks_[at + l],
                                   clocks_[static_cast<size_t>(earlier) * lanes_ + l]);
    };
    if (ends_[lane] != kNone) join(ends_[lane]);
    for (const int wait : waits) join(wait);
    ends_[lane] = static_cast<int>(lane_.size());
    lane_.push_back(lane);
    place_.push_back(++clocks_[at + lane]);
  }

 private:
  // Whether `earlier` is done when the next action of a lane begins that waits for
  // `waits` alone.
  bool has(int earlier, int lane, const std::vector<int>& waits) const {
    const auto knows = [&](int action) {
      return clocks_[static_cast<size_t>(action) * lanes_ + lane_[earlier]] >=
             place_[earlier];
    };
    return (ends_[lane] != kNone && knows(ends_[lane])) ||
           std::any_of(waits.begin(), waits.end(), knows);
  }

  size_t lanes_;
  std::vector<int> ends_;  // by lane: its last action, or kNone
  std::vector<int>
      clocks_;  // by action, lane: how many of it are done, itself included
  std::vector<int> lane_, place_;  // by action; places in a lane count from 1
};

class Deriver {
 public:
  Deriver(std::vector<Action>& actions, int lanes)
      : actions_(actions), length_(static_cast<int>(actions.size())), past_(lanes) {}

  void derive_first_step() {
    for_each_batch([&](Action& action, const std::vector<int>& needed) {
      action.waits = past_.missing(needed, action.lane, {});
      action.waits_before.clear();
      past_.add(action.lane, action.waits);
    });
  }

  // Its actions are numbered behind those of the first.
  void derive_next_step() {
    first_ = length_;
    uses_.begin_next_step();
    for_each_batch([&](Action& action, const std::vector<int>& needed) {
      std::vector<int> waits = action.waits;
      for (int& wait : waits) wait += length_;
      action.waits_before = past_.missing(needed, action.lane, waits);
      waits.insert(waits.end(), action.waits_before.begin(), action.waits_before.end());
      past_.add(action.lane, waits);
    });
  }

 private:
  // Those of a batch begin together: each needs what any of them needs.
  template <typename Visit>
  void for_each_batch(Visit&& visit) {
    for (int begin = 0, end = 0; begin < length_; begin = end) {
      std::vector<int> needed;
      do {
        const auto one = uses_.needed_by(actions_[end]);
        needed.insert(needed.end(), one.begin(), one.end());
      } while (++end < length_ && actions_[begin].batch != kNone &&
               actions_[end].batch == actions_[begin].batch);
      for (int i = begin; i < end; ++i) {
        visit(actions_[i], needed);
        uses_.add(first_ + i, actions_[i]);
      }
    }
  }

  std::vector<Action>& actions_;
  int length_;
  int first_ = 0;  // number of the step's first action
  Uses uses_;
  Past past_;
};

}  // namespace

void derive_waits(std::vector<Action>& actions, int lanes, bool runs_ahead) {
  Deriver deriver(actions, lanes);
  deriver.derive_first_step();
  if (runs_ahead) deriver.derive_next_step();
}

std::vector<std::vector<int>> inputs_in_lane(const std::vector<Action>& actions) {
  std::vector<std::vector<int>> all(actions.size());
  Uses uses;
  std::map<std::pair<int, int>, int> last;  // use of a buffer, by lane and buffer
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    for (const auto& access : action.reads)
      if (const int writer = uses.writer_of(access);
          writer != kNone && actions[writer].lane == action.lane)
        all[i].push_back(writer);
    for (const auto& access : action.writes)
      if (const auto used = last.find({action.lane, access.buffer});
          access.buffer != kNone && used != last.end())
        all[i].push_back(used->second);
    uses.add(static_cast<int>(i), action);
    for (const auto* accesses : {&action.reads, &action.writes})
      for (const auto& access : *accesses)
        last[{action.lane, access.buffer}] = static_cast<int>(i);
  }
  return all;
}

}  // namespace cohort
