// SPDX-License-Identifier: Apache-2.0
#include "cohort/optim/lars.h"

#include <array>

#include "cohort/core/error.h"
#include "cohort/optim/gradient_norm.h"
#include "cohort/optim/sum_arithmetic.h"
#include "cohort/optim/typed_rule.h"
#include "cohort/optim/update_arithmetic.h"

namespace cohort {
namespace {

constexpr int kLarsSums = 2;
// Not the name of SGD's state, which has no rate in it.
constexpr std::array<StateSpec, 1> kLarsStates = {{{"velocity"}}};

template <typename Real>
void lars_plain_stretch(Real* __restrict p, const Real* __restrict g, int64_t count,
                        const arithmetic::SgdNumbers<Real> n) {
  for (int64_t i = 0; i < count; ++i) arithmetic::sgd_plain(p[i], g[i], n);
}

template <typename Real>
void lars_momentum_stretch(Real* __restrict p, const Real* __restrict g,
                           Real* __restrict v, int64_t count,
                           const arithmetic::SgdNumbers<Real> n) {
  for (int64_t i = 0; i < count; ++i) arithmetic::lars_momentum(p[i], g[i], v[i], n);
}

template <typename Real>
void lars_nesterov_stretch(Real* __restrict p, const Real* __restrict g,
                           Real* __restrict v, int64_t count,
                           const arithmetic::SgdNumbers<Real> n) {
  for (int64_t i = 0; i < count; ++i) arithmetic::lars_nesterov(p[i], g[i], v[i], n);
}

class Lars final : public TypedLayerRule<Lars> {
 public:
  explicit Lars(const LarsOptions& options) : options_(options) {}

  std::string_view name() const override { return "lars"; }
  std::span<const StateSpec> states() const override {
    if (options_.momentum == 0) return {};
    return kLarsStates;
  }

  int reductions() const override { return kLarsSums; }

  template <typename Real>
  void add_squares(const UpdateStretch<const Real>& chunk, const ParameterTraits&,
                   const StepScalars&, std::span<double> sums) const {
    COHORT_CHECK(chunk.count <= kNormChunk && sums.size() == kLarsSums, chunk.count,
                 " elements, ", sums.size(), " sums");
    sums[0] = arithmetic::square_sum(chunk.parameter, chunk.count);
    sums[1] = arithmetic::square_sum(chunk.gradient, chunk.count);
  }

  template <typename Real>
  void update(const UpdateStretch<Real>& s, const ParameterTraits& traits,
              std::span<const double> totals, const StepScalars& scalars) const {
    const auto n = arithmetic::sgd_numbers<Real>(
        scalars.grad_scale, traits.weight_decay, options_.momentum,
        scalars.rate * trust(traits, totals, scalars));
    if (s.states.empty())
      lars_plain_stretch(s.parameter, s.gradient, s.count, n);
    else if (options_.nesterov)
      lars_nesterov_stretch(s.parameter, s.gradient, s.states[0], s.count, n);
    else
      lars_momentum_stretch(s.parameter, s.gradient, s.states[0], s.count, n);
  }

 private:
  double trust(const ParameterTraits& traits, std::span<const double> totals,
               const StepScalars& scalars) const {
    if (!traits.adapts) return 1;
    COHORT_CHECK(totals.size() == kLarsSums, totals.size(), " totals");
    return arithmetic::lars_trust(totals[0], totals[1], options_.trust,
                                  scalars.grad_scale, traits.weight_decay,
                                  options_.eps);
  }

  LarsOptions options_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_lars(const LarsOptions& options) {
  return std::make_unique<Lars>(options);
}

}  // namespace cohort
