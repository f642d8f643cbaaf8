// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/optim/update_arithmetic.h"
#include "cohort/update_rule.h"

namespace cohort {

// Where weight decay enters.
enum class AdamDecay {
  kGradient,   // Adam: added to the gradient (L2)
  kDecoupled,  // AdamW: the parameter shrinks by rate * decay (Loshchilov, Hutter 2019)
};

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  AdamDecay decay = AdamDecay::kGradient;
};

// Adam (Kingma, Ba 2015) as PyTorch's torch.optim.Adam and AdamW have it, t from 1:
//   m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2
//   p = p - rate / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
// States: exp_avg (m) and exp_avg_sq (v), PyTorch's names.
std::unique_ptr<UpdateRule> make_adam(const AdamOptions& options);

// What step t needs of pow(), which only the host works out.
arithmetic::AdamStep adam_step(const AdamOptions& options, int64_t step);

}  // namespace cohort
