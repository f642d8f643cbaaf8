// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/versions.h"

#include "cohort/core/error.h"

namespace cohort {

bool Versions::has(What what, int of, int slice) const {
  return newest_.contains({what, of, slice}) || is_given({what, of, slice});
}

void Versions::read(Action& action, What what, int of, int slice) const {
  const auto it = newest_.find({what, of, slice});
  const Access given{.value = {what, of, slice}};
  COHORT_CHECK(it != newest_.end() || is_given(given.value),
               "an action reads what nobody wrote");
  action.reads.push_back(it != newest_.end() ? it->second : given);
}

void Versions::make(Action& action, What what, int of, int slice, int buffer) {
  const auto [it, first] = newest_.try_emplace({what, of, slice});
  Access& newest = it->second;
  const int version =
      first ? (is_given({what, of, slice}) ? 1 : 0) : newest.value.version + 1;
  newest = {.value = {what, of, slice, version}, .buffer = buffer};
  action.writes.push_back(newest);
}

void Versions::change(Action& action, What what, int of, int slice) {
  read(action, what, of, slice);
  make(action, what, of, slice, action.reads.back().buffer);
}

}  // namespace cohort
