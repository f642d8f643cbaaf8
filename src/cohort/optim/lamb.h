// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/update_rule.h"

namespace cohort {

struct LambOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
};

// LAMB (You et al. 2019, algorithm 2; phi is the identity), t from 1:
//   m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2
//   u = m / (1 - beta1^t) / (sqrt(v) / sqrt(1 - beta2^t) + eps) + decay * p
//   p = p - rate * |p| / |u| * u
// |p| and |u| are the norms of a whole tensor. Where one of them is zero, or the tensor
// does not adapt, p = p - rate * u.
//
// Two reductions: the squares of p and of u. reduce() works out the moments that
// apply() will write, and keeps them to itself.
std::unique_ptr<UpdateRule> make_lamb(const LambOptions& options);

}  // namespace cohort
