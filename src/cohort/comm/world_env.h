// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/comm/world.h"

namespace cohort {

// An environment: from a variable's name to its value. An empty value counts as
// unset.
using Environment = std::function<std::optional<std::string>(const std::string&)>;

// The environment of this process.
std::optional<std::string> process_environment(const std::string& name);

// world_from_env() of any environment.
World world_from(const Environment& env);

// The hosts of a Slurm node list: "a[1-2,05],b" is a1, a2, a05, b. Throws
// ConfigError for a list that is not well formed.
std::vector<std::string> slurm_hosts(std::string_view list);

// Slurm's tasks of each node: "2(x3),1" is 2, 2, 2, 1. Throws ConfigError.
std::vector<int> slurm_tasks(std::string_view list);

}  // namespace cohort
