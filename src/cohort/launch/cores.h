// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <vector>

namespace cohort::process {

// The cores this process may use, neighbours (same package, same physical core)
// side by side.
std::vector<int> allowed_cores();

// Cuts `cores` into `parts` disjoint runs of nearly equal length, in order. Empty
// when there are fewer cores than parts.
std::vector<std::vector<int>> share_cores(const std::vector<int>& cores, int parts);

// Moves all threads of a process to `cores`. A refusal costs speed, nothing else.
void pin_process(pid_t pid, const std::vector<int>& cores);

}  // namespace cohort::process
