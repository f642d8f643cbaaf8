// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cohort/checkpoint/checkpoint.h"
#include "cohort/checkpoint/disk.h"

namespace cohort {

// Which checkpoints stay; each rule keeps some, the others go. The newest always stays,
// and so does what cannot be read: its user should see it.
struct Retention {
  int64_t last = 0;         // the newest so many; 0: all
  int64_t every_steps = 0;  // those whose step is a multiple; 0: none for this
  int64_t best = 0;         // so many with the best metric; 0: none for this
  std::string metric;       // a key of RunState::metrics; without it best counts none
  enum class Better { kLower, kHigher } better = Better::kLower;
};

// The paths of those that no rule keeps, oldest first.
std::vector<std::string> superfluous(std::span<const CheckpointInfo> checkpoints,
                                     const Retention& retention);

// Makes a checkpoint vanish at one instant, then removes it. Files that others share
// with it stay theirs.
void remove_checkpoint(const std::string& path, Disk& disk);

// What a killed writer left in `root`: removes it, and puts back what it was about to
// replace.
void clean_leftovers(const std::string& root, Disk& disk);

}  // namespace cohort
