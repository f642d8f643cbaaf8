// SPDX-License-Identifier: Apache-2.0
#include "cohort/optim/lamb.h"

#include <array>

#include "cohort/core/error.h"
#include "cohort/optim/adam.h"
#include "cohort/optim/gradient_norm.h"
#include "cohort/optim/sum_arithmetic.h"
#include "cohort/optim/typed_rule.h"
#include "cohort/optim/update_arithmetic.h"

namespace cohort {
namespace {

using arithmetic::LambNumbers;

constexpr int kLambSums = 2;
constexpr std::array<StateSpec, 2> kLambStates = {{{"exp_avg"}, {"exp_avg_sq"}}};

template <typename Real>
void lamb_directions(const Real* __restrict p, const Real* __restrict g,
                     const Real* __restrict m, const Real* __restrict v, int64_t count,
                     const LambNumbers<Real> n, Real* __restrict u) {
  for (int64_t i = 0; i < count; ++i) {
    Real next_m = m[i], next_v = v[i];
    u[i] = arithmetic::lamb_direction(p[i], g[i], next_m, next_v, n);
  }
}

// Copies as in adam.cpp.
template <typename Real>
void lamb_stretch(Real* __restrict p, const Real* __restrict g, Real* __restrict m,
                  Real* __restrict v, int64_t count, const Real rate,
                  const LambNumbers<Real> n) {
  for (int64_t i = 0; i < count; ++i) {
    Real next_p = p[i], next_m = m[i], next_v = v[i];
    arithmetic::lamb_update(next_p, g[i], next_m, next_v, rate, n);
    p[i] = next_p;
    m[i] = next_m;
    v[i] = next_v;
  }
}

class HostLamb final : public TypedLayerRule<HostLamb> {
 public:
  explicit HostLamb(const LambOptions& options)
      : options_{options.beta1, options.beta2, options.eps} {}

  std::string_view name() const override { return "lamb"; }
  std::span<const StateSpec> states() const override { return kLambStates; }

  int reductions() const override { return kLambSums; }

  template <typename Real>
  void add_squares(const UpdateStretch<const Real>& chunk,
                   const ParameterTraits& traits, const StepScalars& scalars,
                   std::span<double> sums) const {
    COHORT_CHECK(chunk.count <= kNormChunk && sums.size() == kLambSums, chunk.count,
                 " elements, ", sums.size(), " sums");
    Real directions[kNormChunk];
    lamb_directions(chunk.parameter, chunk.gradient, chunk.states[0], chunk.states[1],
                    chunk.count, numbers<Real>(traits, scalars), directions);
    sums[0] = arithmetic::square_sum(chunk.parameter, chunk.count);
    sums[1] = arithmetic::square_sum(directions, chunk.count);
  }

  template <typename Real>
  void update(const UpdateStretch<Real>& s, const ParameterTraits& traits,
              std::span<const double> totals, const StepScalars& scalars) const {
    lamb_stretch(s.parameter, s.gradient, s.states[0], s.states[1], s.count,
                 static_cast<Real>(scalars.rate * trust(traits, totals)),
                 numbers<Real>(traits, scalars));
  }

 private:
  template <typename Real>
  LambNumbers<Real> numbers(const ParameterTraits& traits,
                            const StepScalars& scalars) const {
    return arithmetic::lamb_numbers<Real>(adam_step(options_, scalars.step),
                                          scalars.grad_scale, traits.weight_decay);
  }

  static double trust(const ParameterTraits& traits, std::span<const double> totals) {
    if (!traits.adapts) return 1;
    COHORT_CHECK(totals.size() == kLambSums, totals.size(), " totals");
    return arithmetic::lamb_trust(totals[0], totals[1]);
  }

  AdamOptions options_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_lamb(const LambOptions& options) {
  return std::make_unique<HostLamb>(options);
}

}  // namespace cohort
