// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <tuple>

#include "cohort/step/schedule.h"

namespace cohort {

// The newest version of each value while a list is written, to declare what the next
// action reads and writes.
class Versions {
 public:
  bool has(What what, int of = kNone, int slice = kNone) const;

  // The action reads the newest version.
  void read(Action& action, What what, int of = kNone, int slice = kNone) const;
  // It makes the next one: in `buffer`, or in memory of the value's own.
  void make(Action& action, What what, int of = kNone, int slice = kNone,
            int buffer = kNone);
  // It makes the next one of the newest, where that is.
  void change(Action& action, What what, int of = kNone, int slice = kNone);

 private:
  using Key = std::tuple<What, int, int>;
  std::map<Key, Access> newest_;
};

}  // namespace cohort
