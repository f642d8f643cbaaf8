// SPDX-License-Identifier: Apache-2.0
#include "cohort/optim/adam.h"

#include <array>
#include <cmath>

#include "cohort/optim/typed_rule.h"
#include "cohort/optim/update_arithmetic.h"

namespace cohort {
namespace {

constexpr std::array<StateSpec, 2> kAdamStates = {{{"exp_avg"}, {"exp_avg_sq"}}};

// No branch and no call in the loop: additions, products, a division and a square root
// are rounded alike in vector and scalar code. Copies, since behind a reference the
// compiler no longer sees that the arrays lie apart, and would test it for each call.
template <typename Real>
void adam_stretch(Real* __restrict p, const Real* __restrict g, Real* __restrict m,
                  Real* __restrict v, int64_t count,
                  const arithmetic::AdamNumbers<Real> n) {
  for (int64_t i = 0; i < count; ++i) {
    Real next_p = p[i], next_m = m[i], next_v = v[i];
    arithmetic::adam_update(next_p, g[i], next_m, next_v, n);
    p[i] = next_p;
    m[i] = next_m;
    v[i] = next_v;
  }
}

class Adam final : public TypedRule<Adam> {
 public:
  explicit Adam(const AdamOptions& options) : options_(options) {}

  std::string_view name() const override { return decoupled() ? "adamw" : "adam"; }
  std::span<const StateSpec> states() const override { return kAdamStates; }

  template <typename Real>
  void update(const UpdateStretch<Real>& s, const ParameterTraits& traits,
              std::span<const double>, const StepScalars& scalars) const {
    const auto n = arithmetic::adam_numbers<Real>(
        adam_step(options_, scalars.step), scalars.rate, scalars.grad_scale,
        /*gradient_decay=*/decoupled() ? 0 : traits.weight_decay,
        /*keep=*/decoupled() ? 1 - scalars.rate * traits.weight_decay : 1);
    adam_stretch(s.parameter, s.gradient, s.states[0], s.states[1], s.count, n);
  }

 private:
  bool decoupled() const { return options_.decay == AdamDecay::kDecoupled; }

  AdamOptions options_;
};

}  // namespace

arithmetic::AdamStep adam_step(const AdamOptions& options, int64_t step) {
  const auto t = static_cast<double>(step);
  return {options.beta1, options.beta2, options.eps,
          /*correction1=*/1 - std::pow(options.beta1, t),
          /*correction2=*/1 - std::pow(options.beta2, t)};
}

std::unique_ptr<UpdateRule> make_adam(const AdamOptions& options) {
  return std::make_unique<Adam>(options);
}

}  // namespace cohort
