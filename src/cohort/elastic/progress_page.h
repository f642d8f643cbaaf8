// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "cohort/core/unique_fd.h"

namespace cohort {

// A page that the agent and all ranks of a run have mapped: how far each has come, and
// what was told of it.
// It outlives any of them, so the agent sees the last word of a rank that died.
//
// Thread safety: all of it.
class ProgressPage {
 public:
  static constexpr int kMostRanks = 1023;

  // A new one, empty. CommError when the system has no memory for it.
  ProgressPage();
  // The one behind `fd`. CommError if it is none.
  explicit ProgressPage(UniqueFd fd);
  ~ProgressPage();
  ProgressPage(const ProgressPage&) = delete;
  ProgressPage& operator=(const ProgressPage&) = delete;

  int fd() const { return fd_.get(); }

  // Rank `rank` has committed `steps` steps in all, the last in that generation.
  void commit(int rank, int64_t steps, int generation = 0);

  // Raises the highest epoch whose validation was told of; false: it is not higher.
  bool validate(int64_t epoch);
  int64_t validated() const;

  // That the run is done is about to be told of; false: it was before.
  bool finish();

  int64_t highest() const;  // that any rank ever committed
  int generation() const;   // the last in which one was
  int64_t committed(int rank) const;

 private:
  struct Page;
  void map();

  UniqueFd fd_;
  Page* page_ = nullptr;
};

}  // namespace cohort
