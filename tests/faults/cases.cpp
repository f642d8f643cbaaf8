// SPDX-License-Identifier: Apache-2.0
#include "faults/cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>

#include "cohort/core/hash.h"
#include "cohort/core/testing_long_form.h"

namespace cohort::threads {
namespace {

// Runs that pass the same points, where none is disturbed.
bool is_like(const Scenario& one, const Scenario& other) {
  return one.async == other.async && one.model == other.model &&
         (one.stages > 1) == (other.stages > 1) && (one.parts > 1) == (other.parts > 1);
}

// The run's number among those that share strikes, and how many of them take turns.
std::pair<size_t, size_t> turn_of(const Scenario& scenario) {
  constexpr size_t kMostTurns = 3;
  const auto all = short_scenarios();
  const bool calm = scenario.plot == Plot::kCalm;
  const auto shares = [&](const Scenario& one) {
    if (one.plot != scenario.plot) return false;
    if (calm) return is_like(one, scenario);
    return std::ranges::any_of(all, [&](const Scenario& other) {
      return other.plot == Plot::kCalm && is_like(one, other);
    });
  };
  const auto some = std::ranges::count_if(all, shares);
  if (some == 0 || !shares(scenario)) return {0, 1};
  const auto name = [](const Scenario& one) { return testing::PrintToString(one); };
  const auto mine = std::ranges::find(all, name(scenario), name);
  return {std::count_if(all.begin(), mine, shares), std::min<size_t>(some, kMostTurns)};
}

}  // namespace

std::vector<Strike> all_strikes(const Scenario& scenario, const Passes& passes) {
  // A change is noticed some messages earlier or later, a newcomer comes when it can.
  const bool varies =
      (scenario.plot != Plot::kCalm && scenario.plot != Plot::kResumed) ||
      scenario.async;
  std::vector<Strike> strikes;
  for (const auto& [where, count] : passes) {
    const auto& [point, rank] = where;
    const std::vector<FaultKind> here = kinds_at(point);
    if (const char* only = std::getenv("COHORT_POINT"); only && point != only) continue;
    const bool newcomer = rank >= scenario.ranks;
    // How many messages a call takes differs a little: the last ones may not come.
    const int64_t usual = point == "comm.message" ? count * 9 / 10 : count;
    const int64_t sure = newcomer ? 0 : varies ? count / 2 : usual;
    const char* const wanted = std::getenv("COHORT_KIND");
    for (int64_t pass = 1; pass <= count; ++pass)
      for (const FaultKind kind : here) {
        if (wanted && wanted != std::string(kKindNames[static_cast<int>(kind)]))
          continue;
        // A run that is not exact heals what has flipped, to bits of its own.
        if (scenario.model == Model::kCalling && kind == FaultKind::kFlip) continue;
        strikes.push_back({point, rank, pass, kind, pass > sure});
      }
  }
  return strikes;
}

Scenario undisturbed(Scenario scenario) {
  if (scenario.plot != Plot::kResumed) scenario.plot = Plot::kCalm;
  return scenario;
}

std::vector<Strike> choose(std::vector<Strike> all, const Scenario& scenario,
                           const Passes& undisturbed) {
  if (test::is_long()) return all;
  std::mt19937_64 random(hash64(testing::PrintToString(scenario)));
  std::shuffle(all.begin(), all.end(), random);
  std::ranges::stable_partition(all, std::logical_not(), &Strike::may_miss);
  std::map<std::pair<std::string, FaultKind>, Strike> one_each;
  for (auto& strike : all) one_each.try_emplace({strike.point, strike.kind}, strike);
  const auto [turn, turns] = turn_of(scenario);
  std::vector<Strike> chosen;
  for (auto& [key, strike] : one_each) {
    const auto& [point, kind] = key;
    const auto there = undisturbed.lower_bound({point, 0});
    const bool shared = there != undisturbed.end() && there->first.first == point;
    const uint64_t number = hash64(point) + static_cast<uint64_t>(kind);
    if (!shared || (number + turn) % turns == 0) chosen.push_back(std::move(strike));
  }
  return chosen;
}

std::vector<Case> part_of(std::vector<Case> all) {
  if (const char* const wanted = std::getenv("COHORT_CASE"))
    std::erase_if(
        all, [&](const Case& one) { return testing::PrintToString(one) != wanted; });
  const char* const part = std::getenv("COHORT_PART");
  size_t index = 0, parts = 1;
  if (part && std::sscanf(part, "%zu/%zu", &index, &parts) != 2) parts = 1;
  std::vector<Case> mine;
  for (size_t i = index; i < all.size(); i += parts) mine.push_back(std::move(all[i]));
  return mine;
}

void write_cases(const std::string& path, const CaseList& list) {
  std::ofstream file(path);
  file << list.first << '\n';
  for (const Case& one : list.second) {
    for (const auto& [point, rank, pass, kind, may_miss] : one)
      file << point << ' ' << rank << ' ' << pass << ' ' << static_cast<int>(kind)
           << ' ' << may_miss << ' ';
    file << '\n';
  }
}

CaseList read_cases(const std::string& path) {
  CaseList list;
  std::ifstream file(path);
  std::getline(file, list.first);
  for (std::string line; std::getline(file, line);) {
    Case& one = list.second.emplace_back();
    std::istringstream words(line);
    int kind = 0;
    for (Strike s; words >> s.point >> s.rank >> s.pass >> kind >> s.may_miss;) {
      s.kind = static_cast<FaultKind>(kind);
      one.push_back(s);
    }
  }
  return list;
}

}  // namespace cohort::threads
