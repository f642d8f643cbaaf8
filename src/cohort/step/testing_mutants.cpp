// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/testing_mutants.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "cohort/core/error.h"

namespace cohort {
namespace {

// The list whose place i has action `order[i]` of the old one; an action that is there
// twice is waited for at its second place.
std::vector<Action> rearranged(const std::vector<Action>& actions,
                               const std::vector<int>& order) {
  std::vector<int> place(actions.size(), kNone);
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = static_cast<int>(i);
  std::vector<Action> result;
  for (int from : order) {
    Action action = actions[from];
    for (int& wait : action.waits) wait = place[wait];
    std::erase(action.waits, kNone);
    result.push_back(std::move(action));
  }
  return result;
}

class Mutator {
 public:
  Mutator(const Schedule& schedule, const std::function<void(const Mutant&)>& visit)
      : schedule_(schedule), mutant_{.schedule = schedule}, visit_(visit) {}

  void start(size_t role) {
    role_ = role;
    order_.resize(schedule_.roles[role].actions.size());
    std::iota(order_.begin(), order_.end(), 0);
  }
  int size() const { return static_cast<int>(order_.size()); }

  void remove(int i) {
    std::vector<int> order = order_;
    order.erase(order.begin() + i);
    show(order, text("remove ", i));
  }
  void double_up(int i) {
    std::vector<int> order = order_;
    order.insert(order.begin() + i, i);
    show(order, text("double ", i));
  }
  void exchange(int i, int j) {
    std::vector<int> order = order_;
    std::swap(order[i], order[j]);
    show(order, text("exchange ", i, " and ", j));
  }
  void finish() {
    mutant_.schedule.roles[role_].actions = schedule_.roles[role_].actions;
  }

 private:
  void show(const std::vector<int>& order, const std::string& what) {
    mutant_.what = text("role ", role_, ": ", what);
    mutant_.schedule.roles[role_].actions =
        rearranged(schedule_.roles[role_].actions, order);
    visit_(mutant_);
  }

  const Schedule& schedule_;
  Mutant mutant_;
  const std::function<void(const Mutant&)>& visit_;
  size_t role_ = 0;
  std::vector<int> order_;
};

void exchange_sampled(Mutator& mutator, int64_t count, std::mt19937_64& random) {
  std::uniform_int_distribution<int> any(0, mutator.size() - 1);
  for (int64_t k = 0; k < count; ++k) {
    const int i = any(random), j = any(random);
    if (i != j) mutator.exchange(std::min(i, j), std::max(i, j));
  }
}

}  // namespace

void for_each_mutant(const Schedule& schedule, const MutantOptions& options,
                     const std::function<void(const Mutant& mutant)>& visit) {
  Mutator mutator(schedule, visit);
  std::mt19937_64 random(options.seed);
  for (size_t r = 0; r < schedule.roles.size(); ++r) {
    mutator.start(r);
    for (int i = 0; i < mutator.size(); ++i) mutator.remove(i);
    for (int i = 0; i < mutator.size(); ++i) mutator.double_up(i);
    const int64_t pairs = int64_t{mutator.size()} * (mutator.size() - 1) / 2;
    if (options.most_exchanges > 0 && pairs > options.most_exchanges) {
      exchange_sampled(mutator, options.most_exchanges, random);
    } else {
      for (int i = 0; i < mutator.size(); ++i)
        for (int j = i + 1; j < mutator.size(); ++j) mutator.exchange(i, j);
    }
    mutator.finish();
  }
}

namespace {

// All that can be altered in one action, by name.
using Alteration = std::pair<std::string, std::function<void(Action&)>>;

void alter_accesses(const Schedule& schedule, const char* name,
                    std::vector<Access> Action::*list, const Action& action,
                    std::vector<Alteration>& all) {
  for (size_t k = 0; k < (action.*list).size(); ++k) {
    const Access& access = (action.*list)[k];
    const auto add = [&](const char* what, std::function<void(Access&)> change) {
      all.emplace_back(text(what, " of ", name, " ", access.value.text()),
                       [=](Action& a) { change((a.*list)[k]); });
    };
    add("version", [](Access& a) { ++a.value.version; });
    if (access.value.version > 0)
      add("older version", [](Access& a) { --a.value.version; });
    if (access.value.slice != kNone) add("slice", [](Access& a) { ++a.value.slice; });
    const auto buffers = static_cast<int>(schedule.buffers.size());
    if (access.buffer != kNone && buffers > 1)
      add("buffer", [=](Access& a) { a.buffer = (a.buffer + 1) % buffers; });
  }
}

std::vector<Alteration> alterations_of(const Schedule& schedule, const Action& action) {
  std::vector<Alteration> all;
  alter_accesses(schedule, "read", &Action::reads, action, all);
  alter_accesses(schedule, "written", &Action::writes, action, all);
  const auto kind = schedule.channels[action.lane].kind;
  for (int lane = 0; lane < schedule.lanes(); ++lane)
    if (lane != action.lane && schedule.channels[lane].kind == kind)
      all.emplace_back(text("lane ", lane), [=](Action& a) { a.lane = lane; });
  if (kind == Channel::Kind::kGroup && action.bytes > 0)
    all.emplace_back("bytes", [](Action& a) { a.bytes += 8; });
  for (const int wait : action.waits_before)
    all.emplace_back(text("no wait for ", wait, " before"),
                     [=](Action& a) { std::erase(a.waits_before, wait); });
  for (size_t w = 0; w < action.waits.size(); ++w)
    all.emplace_back(text("no wait for ", action.waits[w]), [=](Action& a) {
      a.waits.erase(a.waits.begin() + static_cast<int64_t>(w));
    });
  return all;
}

}  // namespace

void for_each_altered(const Schedule& schedule, const MutantOptions& options,
                      const std::function<void(const Mutant& mutant)>& visit) {
  Mutant mutant{.schedule = schedule};
  std::mt19937_64 random(options.seed);
  for (size_t r = 0; r < schedule.roles.size(); ++r) {
    std::vector<std::pair<size_t, Alteration>> all;
    for (size_t i = 0; i < schedule.roles[r].actions.size(); ++i)
      for (auto& one : alterations_of(schedule, schedule.roles[r].actions[i]))
        all.emplace_back(i, std::move(one));
    if (options.most_exchanges > 0 &&
        static_cast<int64_t>(all.size()) > options.most_exchanges) {
      std::shuffle(all.begin(), all.end(), random);
      all.resize(static_cast<size_t>(options.most_exchanges));
    }
    for (const auto& [i, one] : all) {
      Action& action = mutant.schedule.roles[r].actions[i];
      const Action before = action;
      one.second(action);
      mutant.what =
          text("role ", r, ": action ", i, " ", name_of(before.kind), ", ", one.first);
      visit(mutant);
      action = before;
    }
  }
}

MutantVerdicts judge_mutants(const Schedule& schedule, const MutantOptions& options,
                             const CheckOptions& check_options) {
  MutantVerdicts verdicts;
  for_each_mutant(schedule, options, [&](const Mutant& mutant) {
    try {
      check(mutant.schedule, check_options);
      verdicts.accepted.push_back(mutant);
    } catch (const ConfigError&) {
      ++verdicts.refused;
    }
  });
  return verdicts;
}

}  // namespace cohort
