// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/update_rule.h"

namespace cohort {

struct SgdOptions {
  double momentum = 0;
  bool nesterov = false;
};

// Stochastic gradient descent as PyTorch has it (dampening 0):
//   g = scale * g + decay * p;  v = mu * v + g
//   p = p - rate * (nesterov ? g + mu * v : v)
// Without momentum there is no v.
std::unique_ptr<UpdateRule> make_sgd(const SgdOptions& options);

}  // namespace cohort
