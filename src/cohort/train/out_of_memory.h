// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cohort/block.h"
#include "cohort/core/error.h"
#include "cohort/engine/block_measure.h"
#include "cohort/step/schedule.h"
#include "cohort/train/trainer_options.h"
#include "cohort/update_rule.h"

namespace cohort {

// What a rank of that role has where its blocks compute, largest first, with the sum:
// "activations 12.0 MiB, moments 3.0 MiB in 2 buffers, and 1 more; together 16.0 MiB".
std::string largest_in_plan(const Schedule& schedule, const Role& role);

// For a device that had no memory left although the plan of its step fitted: one line
// with what the allocator said, what the plan has there, and what would need less.
// Allocates nothing on the device.
ConfigError out_of_memory(std::string_view said, const Chain& chain,
                          std::span<const BlockMeasure> measures,
                          const WorldOptions& options, const UpdateRule& rule,
                          int rank);

}  // namespace cohort
