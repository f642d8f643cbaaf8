// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <thread>

#include "cohort/comm/backends.h"
#include "cohort/data_parallel.h"
#include "cohort/engine/cuda/resident_test.h"
#include "cohort/nn/batch_norm_function.h"
#include "support/sine_weights.h"

namespace cohort {
namespace {

using test::batch_of;

using CudaGpuTest = test::ExactGpuTest;

// Against float64 and LibTorch's own formula; channels that are far from zero.
TEST_F(CudaGpuTest, BatchNormBySumsGivesTheNormAndItsGradients) {
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
  const Tensor offset = at::linspace(-4, 4, 16, options).view({1, 16, 1, 1});
  const Tensor wide = at::sin(at::arange(6 * 16 * 9 * 9, options).mul(0.37))
                          .view({6, 16, 9, 9})
                          .add(offset);
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const Tensor upstream =
        at::cos(at::arange(wide.numel(), options)).view_as(wide).to(dtype);
    Values gradients[2];
    Tensor outputs[2];
    for (const bool narrow : {false, true}) {
      const Tensor rounded = wide.to(dtype).contiguous(at::MemoryFormat::ChannelsLast);
      const Tensor x =
          rounded.to(narrow ? dtype : at::kDouble).detach().requires_grad_(true);
      const auto type = options.dtype(narrow ? at::kFloat : at::kDouble);
      const Tensor w = at::linspace(0.5, 1.5, 16, type).requires_grad_(true);
      const Tensor b = at::linspace(-1, 1, 16, type).requires_grad_(true);
      ASSERT_EQ(has_batch_norm_by_sums(x), narrow);
      outputs[narrow] =
          narrow ? batch_norm_by_sums(x, w, b, 1e-5).output
                 : std::get<0>(at::native_batch_norm(x, w, b, {}, {}, true, 0.1, 1e-5));
      const Tensor up = upstream.to(x.scalar_type());
      gradients[narrow] = torch::autograd::grad({outputs[narrow]}, {x, w, b}, {up});
    }
    const double bound = dtype == at::kHalf ? 4e-3 : 3e-2;
    EXPECT_TRUE(at::allclose(outputs[1].to(at::kDouble), outputs[0], bound, bound));
    for (int i = 0; i < 3; ++i) {
      const Tensor error = gradients[1][i].to(at::kDouble) - gradients[0][i];
      EXPECT_LT((error.norm() / gradients[0][i].norm()).item<double>(), bound) << i;
    }
  }
}

// Half of it on the host, half on a GPU.
struct TwoDevices : torch::nn::Module {
  explicit TwoDevices(at::Device second) : device(second) {
    register_module("near", near);
    register_module("far", far);
    test::fill_with_sines(parameters());
    far->to(second);
  }
  Tensor forward(const Tensor& x) { return far(near(x).relu().to(device)); }

  at::Device device;
  torch::nn::Linear near{6, 5}, far{5, 4};
};

std::vector<Tensor> trained_on(at::Device second) {
  const auto comms = connect_threads(2, std::chrono::seconds(60));
  std::vector<Tensor> weights;
  const auto train = [&](int rank) {
    TwoDevices module(second);
    DataParallel parallel(module, *comms[rank]);
    for (int step = 0; step < 3; ++step) {
      const Tensor x = at::arange(12 * (rank + 1), at::kFloat).add(step).cos();
      const Tensor loss = module.forward(x.view({-1, 6})).square().mean();
      parallel.backward(loss, 2 * (rank + 1));
      const c10::NoGradGuard no_grad;
      for (auto& parameter : module.parameters())
        parameter.sub_(parameter.grad().to(parameter.device()), 0.1);
    }
    for (const auto& parameter : module.parameters())
      if (rank == 0) weights.push_back(parameter.detach().cpu());
  };
  std::thread other(train, 1);
  train(0);
  other.join();
  return weights;
}

TEST_F(CudaGpuTest, AModuleOnTwoDevicesTrainsAsOnOne) {
  const auto there = trained_on(at::Device(at::kCUDA, 0)), here = trained_on(at::kCPU);
  for (size_t i = 0; i < here.size(); ++i)
    EXPECT_TRUE(at::allclose(there[i], here[i], 1e-4, 1e-5)) << i;
}

// Steps of two slices as graphs beside kernel by kernel, and both beside the host.
// Steps 0 to 5 have one shape, the last is short.
struct Sliced {
  std::vector<double> losses;
  std::vector<NamedTensor> weights;
};

Sliced train_sliced(ComputeOn compute_on, bool capture, const GeneratorOptions& given,
                    bool images) {
  Chain chain = images
                    ? test::small_resnet()
                    : make_mlp({.inputs = 24, .width = 32, .depth = 2, .dropout = 0.3},
                               {.seed = 3});
  const UpdateOptions update{.name = images ? "sgd" : "adamw", .eps = 1e-3};
  const auto rule = make_update_rule(update);
  const World world;
  const auto store = join(world, {});
  const auto comm = connect(world, *store, {.backend = "local"});
  GeneratorOptions step = given;
  step.slices = 2;
  step.bucket_bytes = 4'000;
  if (compute_on != ComputeOn::kHost) step.memory = MemoryIn::kDevice;
  step.optimizer_states = static_cast<int>(rule->states().size());
  Executor executor(chain, cohort::generate(specs_of(chain), {}, step), *rule, *comm,
                    {.update = update,
                     .clip = step.clip ? 0.5 : 0,
                     .seed = 9,
                     .loss_scale = {.initial = 1024},
                     .usual_count = 12,
                     .compute_on = compute_on,
                     .capture = capture});
  Sliced trained;
  for (int64_t i = 0; i < 7; ++i) {
    const auto batch = [&](int slice) {
      const int64_t rows = i == 6 ? 1 : 4;
      const Batch all = batch_of(2 * i + slice);
      Batch made = Batch::of({{"input", all.at("input").narrow(0, 0, rows)},
                              {"target", all.at("target").narrow(0, 0, rows)}});
      if (!images) made.at("input") = made.at("input").flatten(1).narrow(1, 0, 24);
      for (int64_t k = 0; k < rows; ++k) made.ids.push_back(20 * i + 10 * slice + k);
      return made;
    };
    trained.losses.push_back(
        executor.run({.step = i, .rate = 0.002, .batch = batch}).loss);
  }
  trained.weights = test::gathered_weights(executor, *comm);
  return trained;
}

TEST_F(CudaGpuTest, StepsOfSeveralSlicesTrainAsTheHostDoes) {
  std::vector<GeneratorOptions> ways = {
      {}, {.clip = true, .vote = true}, {.recompute = true}, {.exact = true}};
  ways.push_back({.precision = {.compute = at::kBFloat16, .reduce = at::kBFloat16}});
  ways.push_back(
      {.vote = true, .precision = {.compute = at::kHalf, .reduce = at::kHalf}});
  for (const auto& way : ways)
    for (const bool images : {false, true}) {
      const Sliced graphs = train_sliced(ComputeOn::kCuda, true, way, images);
      const Sliced kernels = train_sliced(ComputeOn::kCuda, false, way, images);
      const Sliced host = train_sliced(ComputeOn::kHost, true, way, images);
      EXPECT_EQ(graphs.losses, kernels.losses);
      const double bound = way.precision.compute == at::kFloat ? 2e-3 : 5e-2;
      for (size_t i = 0; i < host.losses.size(); ++i)
        EXPECT_NEAR(graphs.losses[i], host.losses[i], bound) << i;
      for (size_t i = 0; i < host.weights.size(); ++i) {
        EXPECT_TRUE(graphs.weights[i].tensor.equal(kernels.weights[i].tensor));
        EXPECT_TRUE(at::allclose(graphs.weights[i].tensor, host.weights[i].tensor,
                                 bound, bound))
            << host.weights[i].name;
      }
    }
}

}  // namespace
}  // namespace cohort
