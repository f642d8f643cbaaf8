// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "cohort/core/error.h"

namespace cohort::cli {

// What the flags that were read ask for; returns the exit code.
using Command = std::function<int()>;

// CLI11's own ranges let nan pass and print their ends with 300 digits.
inline CLI::Validator at_least(int least, double most) {
  return {[=](std::string& given) -> std::string {
            double value = 0;
            const bool number = CLI::detail::lexical_cast(given, value);
            if (number && value >= least && value <= most) return "";
            return text("'", given, "'; legal: a number from ", least, " to ", most);
          },
          ""};
}

// How a command on a recipe takes its keys.
inline void add_key_flags(CLI::App& command, std::vector<std::string>& set,
                          std::string& config) {
  command.add_option("--set", set, "key=value; may be repeated")
      ->allow_extra_args(false);
  command.add_option("--config", config, "YAML file of keys");
}

}  // namespace cohort::cli
