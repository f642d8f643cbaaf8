// SPDX-License-Identifier: Apache-2.0
#pragma once

// The arithmetic of the update rules, one element at a time: one text, read by the
// compiler of the host and by NVRTC for a GPU. So it includes nothing.
//
// Sums, products, divisions and square roots are rounded alike everywhere, so that both
// give the same bits, if products and sums are not fused: -ffp-contract=off,
// --fmad=false. What is not rounded alike (pow) is worked out by the host.
//
// All functions are static: the files that include this are compiled with different
// options, and no linker may choose between them.

#ifndef COHORT_EVERYWHERE
#ifdef __CUDACC__
#define COHORT_EVERYWHERE __host__ __device__
#else
#define COHORT_EVERYWHERE
#endif
#endif

namespace cohort::arithmetic {

#ifdef __CUDACC__
COHORT_EVERYWHERE static inline float square_root(float x) { return sqrtf(x); }
COHORT_EVERYWHERE static inline double square_root(double x) { return sqrt(x); }
#else
static inline float square_root(float x) { return __builtin_sqrtf(x); }
static inline double square_root(double x) { return __builtin_sqrt(x); }
#endif

// What a gradient of that norm is multiplied with (gradient_norm.h).
COHORT_EVERYWHERE static inline double clip_factor(double norm, double limit,
                                                   double eps) {
  if (norm != norm) return norm;
  if (limit == 0) return 1;
  const double factor = limit / (norm + eps);
  return factor < 1 ? factor : 1;
}

// ---- SGD and LARS ----------------------------------------------------------

template <typename Real>
struct SgdNumbers {
  Real scale, decay, momentum, rate;
};

// Numbers are worked out in double and rounded once.
template <typename Real>
COHORT_EVERYWHERE static SgdNumbers<Real> sgd_numbers(double scale, double decay,
                                                      double momentum, double rate) {
  return {static_cast<Real>(scale), static_cast<Real>(decay),
          static_cast<Real>(momentum), static_cast<Real>(rate)};
}

template <typename Real>
COHORT_EVERYWHERE static void sgd_plain(Real& p, Real g, const SgdNumbers<Real>& n) {
  p -= n.rate * (n.scale * g + n.decay * p);
}

template <typename Real>
COHORT_EVERYWHERE static void sgd_momentum(Real& p, Real g, Real& v,
                                           const SgdNumbers<Real>& n) {
  const Real grad = n.scale * g + n.decay * p;
  v = n.momentum * v + grad;
  p -= n.rate * v;
}

template <typename Real>
COHORT_EVERYWHERE static void sgd_nesterov(Real& p, Real g, Real& v,
                                           const SgdNumbers<Real>& n) {
  const Real grad = n.scale * g + n.decay * p;
  v = n.momentum * v + grad;
  p -= n.rate * (grad + n.momentum * v);
}

// What the rate of a tensor is multiplied with, from the squares of its parameter and
// of its gradient before scaling.
COHORT_EVERYWHERE static inline double lars_trust(double p_squares, double g_squares,
                                                  double trust, double scale,
                                                  double decay, double eps) {
  const double p = square_root(p_squares), g = scale * square_root(g_squares);
  return p > 0 && g > 0 ? trust * p / (g + decay * p + eps) : 1;
}

// The rate is part of the velocity, which keeps that of the steps before.
template <typename Real>
COHORT_EVERYWHERE static void lars_momentum(Real& p, Real g, Real& v,
                                            const SgdNumbers<Real>& n) {
  v = n.momentum * v + n.rate * (n.scale * g + n.decay * p);
  p -= v;
}

template <typename Real>
COHORT_EVERYWHERE static void lars_nesterov(Real& p, Real g, Real& v,
                                            const SgdNumbers<Real>& n) {
  const Real move = n.rate * (n.scale * g + n.decay * p);
  v = n.momentum * v + move;
  p -= n.momentum * v + move;
}

// ---- Adam and LAMB ---------------------------------------------------------

// Numbers of a step: correction1 = 1 - beta1^t, correction2 = 1 - beta2^t.
struct AdamStep {
  double beta1, beta2, eps, correction1, correction2;
};

template <typename Real>
struct AdamNumbers {
  Real scale, gradient_decay, keep, beta1, blend1, beta2, blend2, step_size, root, eps;
};

template <typename Real>
COHORT_EVERYWHERE static AdamNumbers<Real> adam_numbers(const AdamStep& step,
                                                        double rate, double scale,
                                                        double gradient_decay,
                                                        double keep) {
  return {static_cast<Real>(scale),
          static_cast<Real>(gradient_decay),
          static_cast<Real>(keep),
          static_cast<Real>(step.beta1),
          static_cast<Real>(1 - step.beta1),
          static_cast<Real>(step.beta2),
          static_cast<Real>(1 - step.beta2),
          static_cast<Real>(rate / step.correction1),
          static_cast<Real>(square_root(step.correction2)),
          static_cast<Real>(step.eps)};
}

// The moments advance; where the parameter is to go, and how far, is returned.
template <typename Real>
COHORT_EVERYWHERE static Real adam_move(Real p, Real g, Real& m, Real& v,
                                        const AdamNumbers<Real>& n) {
  const Real grad = n.scale * g + n.gradient_decay * p;
  m = n.beta1 * m + n.blend1 * grad;
  v = n.beta2 * v + n.blend2 * grad * grad;
  return n.step_size * m / (square_root(v) / n.root + n.eps);
}

template <typename Real>
COHORT_EVERYWHERE static void adam_update(Real& p, Real g, Real& m, Real& v,
                                          const AdamNumbers<Real>& n) {
  p = n.keep * p - adam_move(p, g, m, v, n);
}

template <typename Real>
struct LambNumbers {
  AdamNumbers<Real> adam;  // with a rate of 1
  Real decay;
};

template <typename Real>
COHORT_EVERYWHERE static LambNumbers<Real> lamb_numbers(const AdamStep& step,
                                                        double scale, double decay) {
  return {adam_numbers<Real>(step, 1, scale, 0, 1), static_cast<Real>(decay)};
}

// The u of the paper; the moments advance.
template <typename Real>
COHORT_EVERYWHERE static Real lamb_direction(Real p, Real g, Real& m, Real& v,
                                             const LambNumbers<Real>& n) {
  return adam_move(p, g, m, v, n.adam) + n.decay * p;
}

// `rate`: with the tensor's trust in it.
template <typename Real>
COHORT_EVERYWHERE static void lamb_update(Real& p, Real g, Real& m, Real& v, Real rate,
                                          const LambNumbers<Real>& n) {
  p -= rate * lamb_direction(p, g, m, v, n);
}

// From the squares of the parameter and of u.
COHORT_EVERYWHERE static inline double lamb_trust(double p_squares, double u_squares) {
  const double p = square_root(p_squares), u = square_root(u_squares);
  return p > 0 && u > 0 ? p / u : 1;
}

}  // namespace cohort::arithmetic
