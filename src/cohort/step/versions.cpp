// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/versions.h"

#include <limits>

namespace cohort {

bool Versions::has(What what, int of, int slice) const {
  return newest_.contains({what, of, slice}) || is_given({what, of, slice});
}

void Versions::read(Action& action, What what, int of, int slice) const {
  const auto it = newest_.find({what, of, slice});
  action.reads.push_back(it != newest_.end() ? it->second
                                             : Access{.value = {what, of, slice}});
}

void Versions::read_all(Action& action, What what) const {
  for (auto it = newest_.lower_bound({what, std::numeric_limits<int>::min()});
       it != newest_.end() && it->first.what == what; ++it)
    action.reads.push_back(it->second);
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
