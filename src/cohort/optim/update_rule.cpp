// SPDX-License-Identifier: Apache-2.0
#include "cohort/optim/update_rule.h"

#include "cohort/core/error.h"
#include "cohort/core/nearest.h"
#include "cohort/optim/sgd.h"

namespace cohort {

std::unique_ptr<UpdateRule> make_update_rule(const UpdateOptions& options) {
  if (options.name == "sgd")
    return make_sgd({.momentum = options.momentum, .nesterov = options.nesterov});
  throw ConfigError(text("[optim] unknown optimizer '", options.name,
                         "'; legal: sgd (adam and adamw come with a later release)"));
}

}  // namespace cohort
