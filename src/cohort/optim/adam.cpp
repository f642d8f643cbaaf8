// SPDX-License-Identifier: Apache-2.0
#include "cohort/optim/adam.h"

#include <array>
#include <cmath>

namespace cohort {
namespace {

constexpr std::array<std::string_view, 2> kStates = {"exp_avg", "exp_avg_sq"};

// The step's numbers, worked out in double and rounded once.
struct Numbers {
  float scale, gradient_decay, keep, beta1, blend1, beta2, blend2, step_size, root, eps;
};

// No branch and no call in the loop: additions, products, a division and a square root
// are rounded alike in vector and scalar code.
void update(float* __restrict p, const float* __restrict g, float* __restrict m,
            float* __restrict v, int64_t count, const Numbers n) {
  for (int64_t i = 0; i < count; ++i) {
    const float grad = n.scale * g[i] + n.gradient_decay * p[i];
    m[i] = n.beta1 * m[i] + n.blend1 * grad;
    v[i] = n.beta2 * v[i] + n.blend2 * grad * grad;
    const float denominator = std::sqrt(v[i]) / n.root + n.eps;
    p[i] = n.keep * p[i] - n.step_size * m[i] / denominator;
  }
}

class Adam final : public UpdateRule {
 public:
  explicit Adam(const AdamOptions& options) : options_(options) {}

  std::string_view name() const override { return decoupled() ? "adamw" : "adam"; }
  std::span<const std::string_view> states() const override { return kStates; }

  void apply(float* p, const float* g, std::span<float* const> states, int64_t count,
             double weight_decay, const StepScalars& scalars) const override {
    const auto t = static_cast<double>(scalars.step);
    const double correction1 = 1 - std::pow(options_.beta1, t);
    const double correction2 = 1 - std::pow(options_.beta2, t);
    const auto number = [](double value) { return static_cast<float>(value); };
    const Numbers n{
        .scale = number(scalars.grad_scale),
        .gradient_decay = number(decoupled() ? 0 : weight_decay),
        .keep = number(decoupled() ? 1 - scalars.rate * weight_decay : 1),
        .beta1 = number(options_.beta1),
        .blend1 = number(1 - options_.beta1),
        .beta2 = number(options_.beta2),
        .blend2 = number(1 - options_.beta2),
        .step_size = number(scalars.rate / correction1),
        .root = number(std::sqrt(correction2)),
        .eps = number(options_.eps),
    };
    update(p, g, states[0], states[1], count, n);
  }

 private:
  bool decoupled() const { return options_.decay == AdamDecay::kDecoupled; }

  AdamOptions options_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adam(const AdamOptions& options) {
  return std::make_unique<Adam>(options);
}

}  // namespace cohort
