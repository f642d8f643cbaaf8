// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

#include "cohort/observe/meter.h"

namespace cohort {

// What people see of a run, as text without effects: cli/ decides where it goes. No
// line is wider than asked for. With `ascii` nothing beyond ASCII is used.

struct TextStyle {
  int width = 80;  // columns of the terminal
  bool ascii = false;
};

struct ProgressState {
  std::string label;  // "epoch 2/10"; may be empty
  int64_t done = 0;   // steps, with those before a resume
  int64_t total = 0;  // 0: not known
  double elapsed_s = 0;
  double steps_per_second = 0;  // recent; 0: not known yet
  double samples_per_second = 0;
  double loss = std::numeric_limits<double>::quiet_NaN();
};

// For a terminal, without a line end, to be drawn over itself:
//   epoch 2/10:  42%|####      | 394/938 [00:12<00:17, 857 samples/s, loss 0.532]
std::string progress_line(const ProgressState& state, const TextStyle& style = {});

// For a file, one line per interval:
//   2026-01-31T12:00:00Z epoch 2/10 step 394/938 (42%) loss 0.532 857 samples/s
//   00:12<00:17
std::string plain_line(const ProgressState& state,
                       std::chrono::system_clock::time_point now);

// The step's time by kind, with percents and bars:
//   forward   12.0 ms   31.5 %  #########
std::string split_table(const StepSplit& split, const TextStyle& style = {});

}  // namespace cohort
