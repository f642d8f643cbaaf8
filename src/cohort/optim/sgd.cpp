// SPDX-License-Identifier: Apache-2.0
#include "cohort/optim/sgd.h"

#include <array>

#include "cohort/optim/typed_rule.h"
#include "cohort/optim/update_arithmetic.h"

namespace cohort {
namespace {

using arithmetic::SgdNumbers;

constexpr std::array<StateSpec, 1> kSgdStates = {{{"momentum"}}};

template <typename Real>
void sgd_plain_stretch(Real* __restrict p, const Real* __restrict g, int64_t count,
                       const SgdNumbers<Real> n) {
  for (int64_t i = 0; i < count; ++i) arithmetic::sgd_plain(p[i], g[i], n);
}

template <typename Real>
void sgd_momentum_stretch(Real* __restrict p, const Real* __restrict g,
                          Real* __restrict v, int64_t count, const SgdNumbers<Real> n) {
  for (int64_t i = 0; i < count; ++i) arithmetic::sgd_momentum(p[i], g[i], v[i], n);
}

template <typename Real>
void sgd_nesterov_stretch(Real* __restrict p, const Real* __restrict g,
                          Real* __restrict v, int64_t count, const SgdNumbers<Real> n) {
  for (int64_t i = 0; i < count; ++i) arithmetic::sgd_nesterov(p[i], g[i], v[i], n);
}

class Sgd final : public TypedRule<Sgd> {
 public:
  explicit Sgd(const SgdOptions& options) : options_(options) {}

  std::string_view name() const override { return "sgd"; }

  std::span<const StateSpec> states() const override {
    if (options_.momentum == 0) return {};
    return kSgdStates;
  }

  template <typename Real>
  void update(const UpdateStretch<Real>& s, const ParameterTraits& traits,
              std::span<const double>, const StepScalars& scalars) const {
    const auto n = arithmetic::sgd_numbers<Real>(
        scalars.grad_scale, traits.weight_decay, options_.momentum, scalars.rate);
    if (s.states.empty())
      sgd_plain_stretch(s.parameter, s.gradient, s.count, n);
    else if (options_.nesterov)
      sgd_nesterov_stretch(s.parameter, s.gradient, s.states[0], s.count, n);
    else
      sgd_momentum_stretch(s.parameter, s.gradient, s.states[0], s.count, n);
  }

 private:
  SgdOptions options_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_sgd(const SgdOptions& options) {
  return std::make_unique<Sgd>(options);
}

}  // namespace cohort
