// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "cohort/step/schedule.h"

namespace cohort {

// The newest version of each value while a list is written, to declare what the next
// action reads and writes.
class Versions {
 public:
  bool has(What what, int of = kNone, int slice = kNone) const;

  // The action reads the newest version; of what nobody has written, the first.
  void read(Action& action, What what, int of = kNone, int slice = kNone) const;
  // The newest versions of all of a kind, in their order.
  void read_all(Action& action, What what) const;
  // It makes the next one: in `buffer`, or in memory of the value's own.
  void make(Action& action, What what, int of = kNone, int slice = kNone,
            int buffer = kNone);
  // It makes the next one of the newest, where that is.
  void change(Action& action, What what, int of = kNone, int slice = kNone);

 private:
  std::map<Value, Access> newest_;  // by any version
};

}  // namespace cohort
