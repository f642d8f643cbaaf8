// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/update_rule.h"

namespace cohort {

struct LarsOptions {
  double momentum = 0.9;
  bool nesterov = false;
  double trust = 0.001;  // eta of the paper
  double eps = 1e-8;
};

// LARS, layer-wise adaptive rate scaling (You, Gitman, Ginsburg 2017, algorithm 1):
//   local = rate * trust * |p| / (|g| + decay * |p| + eps)
//   v = momentum * v + local * (g + decay * p)
//   p = p - (nesterov ? momentum * v + local * (g + decay * p) : v)
// |p| and |g| are the norms of a whole tensor, g is scaled. Where one of them is zero,
// or the tensor does not adapt, local = rate. Without momentum there is no v.
//
// Two reductions: the squares of p, and of the gradient before it is scaled.
std::unique_ptr<UpdateRule> make_lars(const LarsOptions& options);

}  // namespace cohort
