// SPDX-License-Identifier: Apache-2.0
#pragma once

// The update rules on a device: optim/update_arithmetic.h over the tiles of a shard.

#include "cohort/engine/cuda/kernels/memory.cuh"
#include "cohort/engine/cuda/kernels/sums.cuh"
#include "cohort/optim/update_arithmetic.h"

namespace cohort::kernels {

// A rule has
//
//   kStates         how many states, each as long as the parameter
//   numbers(...)    what is alike in a range, worked out once; `totals` is null if the
//                   range does not adapt
//   apply(...)      one element: parameter p, gradient g, states s
//   reduced(...)    where it adapts: what is squared for the second sum; the first is
//                   of p
//
// as the rules of the same names in optim/ put their numbers together.

__device__ inline arithmetic::SgdNumbers<float> sgd_numbers_of(const RuleNumbers& rule,
                                                               const StepNumbers& step,
                                                               double decay) {
  return arithmetic::sgd_numbers<float>(step.grad_scale, decay, rule.momentum,
                                        step.rate);
}

__device__ inline arithmetic::SgdNumbers<float> lars_numbers_of(const RuleNumbers& rule,
                                                                const StepNumbers& step,
                                                                double decay,
                                                                const double* totals) {
  const double trust = totals ? arithmetic::lars_trust(totals[0], totals[1], rule.trust,
                                                       step.grad_scale, decay, rule.eps)
                              : 1;
  return arithmetic::sgd_numbers<float>(step.grad_scale, decay, rule.momentum,
                                        step.rate * trust);
}

__device__ inline arithmetic::AdamStep adam_step_of(const RuleNumbers& rule,
                                                    const StepNumbers& step) {
  return {rule.beta1, rule.beta2, rule.eps, step.correction1, step.correction2};
}

struct SgdRule {
  using Numbers = arithmetic::SgdNumbers<float>;
  __device__ static Numbers numbers(const RuleNumbers& rule, const StepNumbers& step,
                                    double decay, const double*) {
    return sgd_numbers_of(rule, step, decay);
  }
  __device__ static float reduced(float, float g, const float*, const Numbers&) {
    return g;
  }
};

struct LarsRule {
  using Numbers = arithmetic::SgdNumbers<float>;
  __device__ static Numbers numbers(const RuleNumbers& rule, const StepNumbers& step,
                                    double decay, const double* totals) {
    return lars_numbers_of(rule, step, decay, totals);
  }
  __device__ static float reduced(float, float g, const float*, const Numbers&) {
    return g;
  }
};

template <typename Rule>
struct Plain : Rule {
  static constexpr int kStates = 0;
  __device__ static void apply(float& p, float g, float*,
                               const typename Rule::Numbers& n) {
    arithmetic::sgd_plain(p, g, n);
  }
};
using SgdPlain = Plain<SgdRule>;
using LarsPlain = Plain<LarsRule>;

struct SgdMomentum : SgdRule {
  static constexpr int kStates = 1;
  __device__ static void apply(float& p, float g, float* s, const Numbers& n) {
    arithmetic::sgd_momentum(p, g, s[0], n);
  }
};

struct SgdNesterov : SgdRule {
  static constexpr int kStates = 1;
  __device__ static void apply(float& p, float g, float* s, const Numbers& n) {
    arithmetic::sgd_nesterov(p, g, s[0], n);
  }
};

struct LarsMomentum : LarsRule {
  static constexpr int kStates = 1;
  __device__ static void apply(float& p, float g, float* s, const Numbers& n) {
    arithmetic::lars_momentum(p, g, s[0], n);
  }
};

struct LarsNesterov : LarsRule {
  static constexpr int kStates = 1;
  __device__ static void apply(float& p, float g, float* s, const Numbers& n) {
    arithmetic::lars_nesterov(p, g, s[0], n);
  }
};

template <bool kDecoupled>
struct AdamRule {
  static constexpr int kStates = 2;
  using Numbers = arithmetic::AdamNumbers<float>;
  __device__ static Numbers numbers(const RuleNumbers& rule, const StepNumbers& step,
                                    double decay, const double*) {
    return arithmetic::adam_numbers<float>(adam_step_of(rule, step), step.rate,
                                           step.grad_scale, kDecoupled ? 0 : decay,
                                           kDecoupled ? 1 - step.rate * decay : 1);
  }
  __device__ static void apply(float& p, float g, float* s, const Numbers& n) {
    arithmetic::adam_update(p, g, s[0], s[1], n);
  }
};
using Adam = AdamRule<false>;
using AdamW = AdamRule<true>;

struct Lamb {
  static constexpr int kStates = 2;
  struct Numbers {
    arithmetic::LambNumbers<float> lamb;
    float rate;
  };
  __device__ static Numbers numbers(const RuleNumbers& rule, const StepNumbers& step,
                                    double decay, const double* totals) {
    const double trust = totals ? arithmetic::lamb_trust(totals[0], totals[1]) : 1;
    return {arithmetic::lamb_numbers<float>(adam_step_of(rule, step), step.grad_scale,
                                            decay),
            static_cast<float>(step.rate * trust)};
  }
  __device__ static void apply(float& p, float g, float* s, const Numbers& n) {
    arithmetic::lamb_update(p, g, s[0], s[1], n.rate, n.lamb);
  }
  // The moments that the update will write are worked out, and forgotten.
  __device__ static float reduced(float p, float g, const float* s, const Numbers& n) {
    float m = s[0], v = s[1];
    return arithmetic::lamb_direction(p, g, m, v, n.lamb);
  }
};

// What is written beside the weights: the parameter as it is computed with.
__device__ inline void publish(Nothing*, float) {}
__device__ inline void publish_pack(Nothing*, const Pack<float>&) {}
__device__ inline bool packs(const Nothing*) { return true; }
template <typename Out>
__device__ inline void publish(Out* to, float p) {
  put(*to, p);
}
template <typename Out>
__device__ inline void publish_pack(Out* to, const Pack<float>& p) {
  store_pack(to, p);
}

constexpr int kSums = 2;  // for each chunk of a tensor that adapts

// One shard, in memory.
template <typename Rule, typename In, typename Out>
struct Shard {
  static constexpr int kStates = Rule::kStates;
  static constexpr int kPlaces = kStates > 0 ? kStates : 1;  // no empty arrays
  float* master;
  const In* gradient;
  Out* published;
  float* states[kPlaces];

  // From element `begin` on.
  __device__ Shard(const UpdateArguments& a, int64_t begin)
      : master(a.master + begin),
        gradient(static_cast<const In*>(a.gradient) + begin),
        published(static_cast<Out*>(a.published) + begin),
        states{} {
    for (int k = 0; k < kStates; ++k) states[k] = a.states[k] + begin;
  }

  __device__ bool packed() const {
    bool all = packs(master) && packs(gradient) && packs(published);
    for (int k = 0; k < kStates; ++k) all = all && packs(states[k]);
    return all;
  }

  __device__ void update_element(int64_t i, const typename Rule::Numbers& n) const {
    float p = master[i], s[kPlaces] = {};
    for (int k = 0; k < kStates; ++k) s[k] = states[k][i];
    Rule::apply(p, widened(gradient[i]), s, n);
    master[i] = p;
    for (int k = 0; k < kStates; ++k) states[k][i] = s[k];
    publish(published + i, p);
  }

  __device__ void update_pack(int64_t i, const typename Rule::Numbers& n) const {
    Pack<float> p = load_pack(master + i), s[kPlaces] = {};
    const Pack<float> g = load_wide(gradient + i);
    for (int k = 0; k < kStates; ++k) s[k] = load_pack(states[k] + i);
    for (int e = 0; e < kPack; ++e) {
      float here[kPlaces];
      for (int k = 0; k < kPlaces; ++k) here[k] = s[k].at[e];
      Rule::apply(p.at[e], g.at[e], here, n);
      for (int k = 0; k < kPlaces; ++k) s[k].at[e] = here[k];
    }
    store_pack(master + i, p);
    for (int k = 0; k < kStates; ++k) store_pack(states[k] + i, s[k]);
    publish_pack(published + i, p);
  }
};

template <typename Rule>
__device__ inline typename Rule::Numbers numbers_of(const UpdateArguments& a,
                                                    int range) {
  const RangeTraits traits = a.ranges[range];
  const double* const totals =
      a.totals && traits.place >= 0 ? a.totals + traits.place * kSums : nullptr;
  return Rule::numbers(a.rule, *a.numbers, traits.weight_decay, totals);
}

// Numbers are worked out in double once for each range that a block meets.
template <typename Rule, typename In, typename Out>
__device__ inline void update(const UpdateArguments& a) {
  if (a.numbers->gate == 0) return;
  __shared__ typename Rule::Numbers shared;
  int known = -1;
  for (int64_t t = blockIdx.x; t < a.num_tiles; t += gridDim.x) {
    const Tile tile = a.tiles[t];
    if (tile.range != known) {
      __syncthreads();
      if (threadIdx.x == 0) shared = numbers_of<Rule>(a, tile.range);
      __syncthreads();
      known = tile.range;
    }
    const typename Rule::Numbers n = shared;
    const Shard<Rule, In, Out> shard(a, tile.begin);
    for_elements(
        tile.count, shard.packed(), threadIdx.x, blockDim.x,
        [&](int64_t i) { shard.update_pack(i, n); },
        [&](int64_t i) { shard.update_element(i, n); });
  }
}

// The sums of the chunks of what adapts; changes nothing else.
template <typename Rule, typename In>
__device__ inline void reduce(const UpdateArguments& a) {
  const auto reduced = [&](const Tile& tile, int lane) {
    const auto n = numbers_of<Rule>(a, tile.range);
    const Shard<Rule, In, Nothing> shard(a, tile.begin);
    return arithmetic::lane_square_sum(tile.count, lane, [&](int64_t i) {
      float s[Shard<Rule, In, Nothing>::kPlaces] = {};
      for (int k = 0; k < Rule::kStates; ++k) s[k] = shard.states[k][i];
      return Rule::reduced(shard.master[i], widened(shard.gradient[i]), s, n);
    });
  };
  for_chunks(
      a.num_tiles,
      [&](int64_t c, int lane) {
        const float* const from = a.master + a.tiles[c].begin;
        return arithmetic::lane_square_sum(a.tiles[c].count, lane,
                                           [&](int64_t i) { return from[i]; });
      },
      [&](int64_t c, double sum) { a.sums[a.tiles[c].slot * kSums] = sum; });
  for_chunks(
      a.num_tiles, [&](int64_t c, int lane) { return reduced(a.tiles[c], lane); },
      [&](int64_t c, double sum) { a.sums[a.tiles[c].slot * kSums + 1] = sum; });
}

}  // namespace cohort::kernels
