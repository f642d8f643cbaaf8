// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/comm/world.h"
#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/cuda/cuda_math.h"
#include "cohort/engine/executor.h"
#include "cohort/nn/models.h"
#include "cohort/step/generator.h"
#include "support/gathered_weights.h"

namespace cohort::test {

constexpr double kRate = 0.02;
constexpr int64_t kBatch = 6;

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

// Kernels that give the same bits every time; skips where there is no GPU.
class ExactGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string why = why_no_cuda();
    if (!why.empty()) GTEST_SKIP() << why;
    set_cuda_math({.tf32 = false, .search = false, .exact = true});
  }
};

// How one rank alone trains. On the host, or with its state on a GPU; kStaged: with
// the host in the GPU's place.
struct ResidentWay {
  std::string rule = "sgd";
  at::ScalarType dtype = at::kFloat;
  ComputeOn on = ComputeOn::kStaged;
  bool capture = true;
  int slices = 1;
  bool vote = false;
  int shard = 0;
  bool meets_alone = false;
  double clip = 0;
  std::string no_decay = {};
  std::string recompute = "none";
  std::string offload = "none";
  LossScaleOptions loss_scale = {};
  uint64_t seed = 0;
  int64_t listed = 0;
  std::function<Chain()> model = small_resnet;
  bool elastic = false;
};

// An executor with its chain and its world.
class Resident {
 public:
  explicit Resident(const ResidentWay& way)
      : chain_(way.model()),
        update_{.name = way.rule, .nesterov = true, .eps = 1e-3, .trust = 0.1},
        rule_(make_update_rule(update_)),
        store_(join(world_, {})),
        comm_(connect(world_, *store_, {.backend = "local"})) {
    GeneratorOptions step{.slices = way.slices,
                          .clip = way.clip > 0,
                          .tensor_sums = rule_->reductions() > 0,
                          .vote = way.vote,
                          .elastic = way.elastic,
                          .recompute = BlockChoice::parse(way.recompute, "test"),
                          .offload = way.offload == "optimizer",
                          .offload_parameters = way.offload == "parameters",
                          .meets_alone = way.meets_alone,
                          .precision = {.compute = way.dtype, .reduce = way.dtype},
                          .optimizer_states = static_cast<int>(rule_->states().size())};
    if (way.on != ComputeOn::kHost) step.memory = MemoryIn::kDevice;
    ExecutorOptions options{.update = update_,
                            .decay = {.weight_decay = 0.01, .no_decay = way.no_decay},
                            .clip = way.clip,
                            .seed = way.seed,
                            .loss_scale = way.loss_scale,
                            .usual_count = kBatch,
                            .compute_on = way.on,
                            .capture = way.capture,
                            .listed_samples = way.listed};
    executor_ = std::make_unique<Executor>(
        chain_, generate(specs_of(chain_), Layout{.shard = way.shard}, step), *rule_,
        *comm_, options, ExecutorServices{.faults = &faults_});
    slices_ = way.slices;
  }

  // The batch of that step, cut evenly.
  StepResult run(int64_t step, double rate = kRate / 10) {
    return run(step, rate, batch_of(step));
  }
  StepResult run(int64_t step, double rate, const Batch& batch) {
    return start(step, rate, batch), executor_->result();
  }
  void start(int64_t step, double rate, const Batch& batch) {
    const int64_t rows = batch.count / slices_;
    executor_->start({.step = step, .rate = rate, .batch = [&](int slice) {
                        Batch part = batch;
                        for (auto& [name, tensor] : part.fields)
                          tensor = tensor.narrow(0, slice * rows, rows);
                        part.count = rows;
                        return part;
                      }});
  }

  Executor& executor() { return *executor_; }
  const Chain& chain() const { return chain_; }
  Communicator& comm() { return *comm_; }
  std::vector<NamedTensor> weights() { return gathered_weights(*executor_, *comm_); }

 private:
  Chain chain_;
  UpdateOptions update_;
  std::unique_ptr<UpdateRule> rule_;
  World world_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Communicator> comm_;
  FaultPlan faults_;  // with none
  std::unique_ptr<Executor> executor_;
  int slices_ = 1;
};

// Losses of steps, and the weights behind them.
struct Trained {
  std::vector<double> losses;
  std::vector<NamedTensor> weights;
};

// `ahead`: each step is begun before the one before it is known.
inline Trained train(const ResidentWay& way, int steps = 7, bool ahead = false) {
  Resident resident(way);
  Trained trained;
  const auto start = [&](int64_t step) {
    if (step < steps) resident.start(step, kRate / 10, batch_of(step));
  };
  if (ahead) start(0);
  for (int64_t step = 0; step < steps; ++step) {
    start(ahead ? step + 1 : step);
    trained.losses.push_back(resident.executor().result().loss);
  }
  trained.weights = resident.weights();
  EXPECT_EQ(resident.executor().captured(), way.on == ComputeOn::kCuda && way.capture);
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

inline Batch bad_batch(int64_t step) {
  Batch bad = batch_of(step);
  bad.at("input").fill_(std::numeric_limits<float>::quiet_NaN());
  return bad;
}

// On either device: a step that is left out changes nothing, the next one does.
inline void expect_no_trace_of_a_bad_step(const ResidentWay& way) {
  Resident resident(way);
  for (int64_t i = 0; i < 5; ++i) EXPECT_FALSE(resident.run(i).skipped);
  const auto before = resident.weights();
  EXPECT_TRUE(resident.run(5, kRate, bad_batch(5)).skipped);
  const auto after = resident.weights();
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(before[i].tensor.equal(after[i].tensor)) << before[i].name;
  EXPECT_FALSE(resident.run(6).skipped);
  EXPECT_FALSE(resident.weights()[0].tensor.equal(before[0].tensor));
}

}  // namespace cohort::test
