// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cohort/comm/world.h"
#include "cohort/engine/cuda/cuda_step.h"
#include "cohort/engine/executor.h"
#include "cohort/nn/models.h"
#include "cohort/step/generator.h"
#include "support/gathered_weights.h"

namespace cohort::test {

constexpr double kRate = 0.02;
constexpr int64_t kBatch = 6;

// Losses of steps, and the weights behind them.
struct Trained {
  std::vector<double> losses;
  std::vector<NamedTensor> weights;
};

inline Chain small_resnet() {
  return make_resnet(
      {.depths = {1, 1}, .width = 8, .classes = 10, .small_images = true}, {.seed = 3});
}

inline Batch batch_of(int64_t step) {
  const Tensor pixels = at::arange(kBatch * 3 * 16 * 16, at::kFloat)
                            .add(static_cast<double>(97 * step))
                            .mul(0.37)
                            .sin()
                            .view({kBatch, 3, 16, 16});
  return Batch::of(
      {{"input", pixels}, {"target", at::arange(kBatch).add(step).remainder(10)}});
}

inline double rate_of(const CudaStepOptions& options) {
  return options.update.name == "sgd" ? kRate : kRate / 10;
}

inline Trained train_by_executor(const CudaStepOptions& options, int steps) {
  Chain chain = small_resnet();
  const auto rule = make_update_rule(options.update);
  const World world;
  const auto store = join(world, {});
  const auto comm = connect(world, *store, {.backend = "local"});
  Schedule schedule =
      generate(specs_of(chain), {},
               {.clip = options.clip > 0,
                .optimizer_states = static_cast<int>(rule->states().size())});
  Executor executor(chain, std::move(schedule), *rule, *comm,
                    {.decay = options.decay, .clip = options.clip});
  Trained trained;
  for (int64_t step = 0; step < steps; ++step)
    trained.losses.push_back(executor
                                 .run({.step = step,
                                       .rate = rate_of(options),
                                       .batch = [&](int) { return batch_of(step); }})
                                 .loss);
  trained.weights = gathered_weights(executor, *comm);
  return trained;
}

inline Trained train_by_step(const CudaStepOptions& options, int steps) {
  Chain chain = small_resnet();
  CudaStep step(chain, options);
  Trained trained;
  for (int64_t i = 0; i < steps; ++i) {
    step.load(i, batch_of(i));
    step.start(i, rate_of(options));
    trained.losses.push_back(step.result().loss);
  }
  trained.weights = step.weights();
  std::ranges::sort(trained.weights, {}, &NamedTensor::name);
  EXPECT_EQ(step.captured(), options.capture && !options.on_host);
  return trained;
}

inline void expect_near(const Trained& a, const Trained& b, double losses,
                        double weights) {
  for (size_t i = 0; i < a.losses.size(); ++i)
    EXPECT_NEAR(a.losses[i], b.losses[i], losses) << "step " << i;
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (size_t i = 0; i < a.weights.size(); ++i) {
    ASSERT_EQ(a.weights[i].name, b.weights[i].name);
    EXPECT_LE((a.weights[i].tensor - b.weights[i].tensor).abs().max().item<double>(),
              weights)
        << a.weights[i].name;
  }
}

}  // namespace cohort::test
