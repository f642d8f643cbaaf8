// SPDX-License-Identifier: Apache-2.0
// What is read for devices, and all of it instantiated. A test compiles this without
// any folder of headers, as NVRTC does; it is part of no program.
#include "sum_arithmetic.h"
#include "update_arithmetic.h"

namespace cohort::arithmetic {

template <typename Real>
double all_of_it(Real* p, const Real* g, Real* m, Real* v, const AdamStep& step) {
  const auto sgd = sgd_numbers<Real>(1, 0, 0.9, lars_trust(4, 9, 0.001, 1, 0, 1e-8));
  sgd_plain(*p, *g, sgd);
  sgd_momentum(*p, *g, *v, sgd);
  sgd_nesterov(*p, *g, *v, sgd);
  lars_momentum(*p, *g, *v, sgd);
  lars_nesterov(*p, *g, *v, sgd);
  adam_update(*p, *g, *m, *v, adam_numbers<Real>(step, 0.1, 1, 0, 1));
  const auto rate = static_cast<Real>(lamb_trust(4, 9));
  lamb_update(*p, *g, *m, *v, rate, lamb_numbers<Real>(step, 1, 0));
  double squares = square_sum(p, 1) + clip_factor(1, 1, 1e-6);
  squares += lane_square_sum(1, 0, [&](long long i) { return p[i]; });
  return tree_sum(&squares, 1, 1);
}

template double all_of_it(float*, const float*, float*, float*, const AdamStep&);
template double all_of_it(double*, const double*, double*, double*, const AdamStep&);

}  // namespace cohort::arithmetic
