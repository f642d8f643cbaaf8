// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>

#include "cohort/step/schedule.h"
#include "cohort/step/versions.h"

namespace cohort {

// What must be known of a list besides its actions, to say what they read and write.
struct ListFacts {
  int blocks = 0;  // in the whole model
  bool forward_only = false;
  std::set<int> statistics;  // blocks whose Forward makes some
  std::set<int> trained;     // buckets
  std::set<int> cut;         // buckets that are whole only between Gather and Free
  std::set<int> turns;       // buckets whose gradients are reduced slice by slice
  std::set<int> looked_at;   // buckets whose state a Norm reads, beside the gradients
};

// Says of each action, in the order of a list, which values it reads and writes: as its
// kind and its fields tell. What nobody has written is read all the same, for the
// checker to refuse.
class Declarer {
 public:
  explicit Declarer(ListFacts facts) : facts_(std::move(facts)) {}

  void declare(Action& action);
  // For transfers, which name their values themselves.
  Versions& versions() { return versions_; }
  // From here on a second copy of that bucket's state is updated, too.
  void mirror(int bucket) {
    facts_.trained.insert(bucket);
    facts_.cut.insert(bucket);
  }

 private:
  void forward(Action& action);
  void recompute(Action& action);
  void backward(Action& action);
  void backward_weight(Action& action);
  void sum(Action& action);
  void gather(Action& action);
  void update(Action& action);
  void reduce_update(Action& action);
  void commit(Action& action);

  void read_inputs(Action& action) const;
  void read_parameters(Action& action) const;
  void add_to_gradients(Action& action);
  void read_addends(Action& action);
  void read_loss(Action& action) const;
  What sum_of(int bucket) const;
  void read_gradient(Action& action, int bucket) const;
  void read_gradients(Action& action) const;
  void read_if_there(Action& action, std::initializer_list<What> whats) const;
  void make_or_change(Action& action, What what, int of, int slice = kNone);

  ListFacts facts_;
  Versions versions_;
  std::set<int> computed_;  // blocks
};

// For lists of a file that declares nothing: what else must be known is in the actions.
void declare_by_kinds(Schedule& schedule);

}  // namespace cohort
