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
