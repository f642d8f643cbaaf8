// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/step/checker.h"
#include "cohort/step/schedule.h"

// For tests: what is in a schedule, and what the checker says of it.
namespace cohort::test {

inline std::map<ActionKind, int> count(const Role& role) {
  std::map<ActionKind, int> counts;
  for (const auto& action : role.actions) ++counts[action.kind];
  return counts;
}

// The first such action; of any bucket, or of that one alone.
inline int find(const Role& role, ActionKind kind, int bucket = kNone) {
  for (size_t i = 0; i < role.actions.size(); ++i)
    if (role.actions[i].kind == kind &&
        (bucket == kNone || role.actions[i].buckets == std::vector{bucket}))
      return static_cast<int>(i);
  ADD_FAILURE() << "no " << name_of(kind);
  return 0;
}

inline std::string refusal(const Schedule& schedule, const CheckOptions& options = {}) {
  try {
    check(schedule, options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

// As a file without comments has it: only the lists say what the step is.
inline Schedule bare(Schedule schedule) {
  schedule.blocks.clear();
  schedule.buckets.clear();
  schedule.shard = 0;
  schedule.elastic = false;
  return schedule;
}

}  // namespace cohort::test
