// SPDX-License-Identifier: Apache-2.0
#include "cohort/optim/update_rule.h"

#include <array>

#include "cohort/core/error.h"
#include "cohort/core/nearest.h"
#include "cohort/optim/adam.h"
#include "cohort/optim/sgd.h"

namespace cohort {
namespace {

AdamOptions adam_options(const UpdateOptions& options, AdamDecay decay) {
  return {.beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .decay = decay};
}

}  // namespace

std::unique_ptr<UpdateRule> make_update_rule(const UpdateOptions& options) {
  if (options.name == "sgd")
    return make_sgd({.momentum = options.momentum, .nesterov = options.nesterov});
  if (options.name == "adam")
    return make_adam(adam_options(options, AdamDecay::kGradient));
  if (options.name == "adamw")
    return make_adam(adam_options(options, AdamDecay::kDecoupled));
  constexpr std::array<std::string_view, 3> legal = {"sgd", "adam", "adamw"};
  throw ConfigError(text("[optim] unknown optimizer '", options.name, "'; nearest: ",
                         nearest(options.name, legal), "; legal: sgd, adam, adamw"));
}

}  // namespace cohort
