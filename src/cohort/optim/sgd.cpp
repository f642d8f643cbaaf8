// SPDX-License-Identifier: Apache-2.0
#include "cohort/optim/sgd.h"

#include <array>

namespace cohort {
namespace {

constexpr std::array<std::string_view, 1> kMomentumState = {"momentum"};

class Sgd final : public UpdateRule {
 public:
  explicit Sgd(const SgdOptions& options) : options_(options) {}

  std::string_view name() const override { return "sgd"; }

  std::span<const std::string_view> states() const override {
    if (options_.momentum == 0) return {};
    return kMomentumState;
  }

  void apply(float* p, const float* g, std::span<float* const> states, int64_t count,
             double weight_decay, const StepScalars& scalars) const override {
    const Numbers n{
        static_cast<float>(scalars.grad_scale), static_cast<float>(weight_decay),
        static_cast<float>(options_.momentum), static_cast<float>(scalars.rate)};
    if (states.empty())
      plain(p, g, count, n);
    else if (options_.nesterov)
      nesterov(p, g, states[0], count, n);
    else
      momentum(p, g, states[0], count, n);
  }

 private:
  struct Numbers {
    float scale, decay, mu, rate;
  };

  static void plain(float* __restrict p, const float* __restrict g, int64_t count,
                    Numbers n) {
    for (int64_t i = 0; i < count; ++i)
      p[i] -= n.rate * (n.scale * g[i] + n.decay * p[i]);
  }

  static void momentum(float* __restrict p, const float* __restrict g,
                       float* __restrict v, int64_t count, Numbers n) {
    for (int64_t i = 0; i < count; ++i) {
      const float grad = n.scale * g[i] + n.decay * p[i];
      v[i] = n.mu * v[i] + grad;
      p[i] -= n.rate * v[i];
    }
  }

  static void nesterov(float* __restrict p, const float* __restrict g,
                       float* __restrict v, int64_t count, Numbers n) {
    for (int64_t i = 0; i < count; ++i) {
      const float grad = n.scale * g[i] + n.decay * p[i];
      v[i] = n.mu * v[i] + grad;
      p[i] -= n.rate * (grad + n.mu * v[i]);
    }
  }

  SgdOptions options_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_sgd(const SgdOptions& options) {
  return std::make_unique<Sgd>(options);
}

}  // namespace cohort
