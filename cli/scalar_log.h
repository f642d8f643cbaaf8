// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cohort/observe/event_file.h"
#include "cohort/train/reporter.h"

namespace cohort::cli {

// The run's scalars for TensorBoard, in DIR/tensorboard of --out DIR; nothing
// without it. Tags are torchtitan's where it has one.
class ScalarLog {
 public:
  // Where the disk has no room for a new file, it is made as soon as there is; without
  // a backlog that is a DataError.
  ScalarLog(const std::string& out, int64_t log_every, Backlog* backlog);
  void step(const StepEvent& event);
  void valid(const ValidEvent& event);
  // At the end: what had no room before may have it now.
  void finish();

 private:
  bool open();

  std::string folder_;  // empty: nothing is written
  Backlog* backlog_;
  int64_t log_every_;
  int64_t last_step_ = 0;
  std::unique_ptr<EventFile> file_;
};

}  // namespace cohort::cli
