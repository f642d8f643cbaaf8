// SPDX-License-Identifier: Apache-2.0
#include "cli/cuda_variant.h"

#include <chrono>
#include <functional>

#include "cli/bench_parts.h"
#include "cohort/step/checker.h"

namespace cohort::cli {
namespace {

using CudaClock = std::chrono::steady_clock;
constexpr int kCudaSteps = 20;  // per turn
constexpr int kCudaWarmup = 3;  // before the capture
constexpr double kCudaRate = 0.01;

double seconds_of(const std::function<void()>& work) {
  const auto begin = CudaClock::now();
  work();
  return std::chrono::duration<double>(CudaClock::now() - begin).count();
}

ExecutorOptions executor_options_of(const CudaCase& bench,
                                    const CudaVariantOptions& options, double count,
                                    const Communicator& comm) {
  ExecutorOptions execute{.update = cuda_update(bench),
                          .decay = {.weight_decay = 1e-4},
                          .clip = bench.clip};
  execute.usual_count = count * comm.size();
  execute.compute_on = ComputeOn::kCuda;
  execute.gpu = options.gpu;
  execute.capture = options.capture;
  return execute;
}

// What blocks keep and make for so many samples, as far as that can be known before
// anything is computed.
void count_bytes(const CudaCase& bench, const TensorPart& part, int64_t samples,
                 at::ScalarType compute, std::span<BlockSpec> specs) {
  if (const auto needs = count_cuda_blocks(bench, part))
    set_bytes(*needs, static_cast<double>(samples), compute, specs);
}

}  // namespace

CudaVariant::CudaVariant(const CudaCase& bench, const BenchTrainArgs& args,
                         const Batch& batch, Communicator& comm,
                         const CudaVariantOptions& options)
    : chain_(bench.make(cuda_part(options.layout, comm.rank()))),
      batch_(batch),
      rule_(make_update_rule(cuda_update(bench))) {
  const ExecutorOptions execute =
      executor_options_of(bench, options, static_cast<double>(batch.count), comm);
  GeneratorOptions step = cuda_step(bench, args, comm.size(), MemoryIn::kDevice);
  step.meets_alone = comm.size() == 1 && comm.takes_cuda();
  auto specs = specs_of(chain_);
  count_bytes(bench, cuda_part(options.layout, comm.rank()), batch.count,
              step.precision.compute, specs);
  Schedule schedule = generate(specs, options.layout, step);
  planned_bytes_ = check(schedule).largest().on_device;
  executor_ =
      std::make_unique<Executor>(chain_, std::move(schedule), *rule_, comm, execute,
                                 ExecutorServices{.watch = options.watch});
  first_s_ = seconds_of([this] { run(1); });
  run(kCudaWarmup + 2);
}

void CudaVariant::take_turn() {
  step_s_.push_back(seconds_of([this] { run(kCudaSteps); }) / kCudaSteps);
}

void CudaVariant::run(int steps) {
  start();
  for (int i = 1; i < steps; ++i) {
    start();
    executor_->result();
  }
  loss_ = executor_->result().loss;
}

double CudaVariant::host_s() {
  std::vector<double> times;
  for (int i = 0; i < kCudaSteps; ++i) {
    times.push_back(seconds_of([this] { start(); }));
    executor_->result();
  }
  return median(times);
}

int64_t CudaVariant::peak_bytes() const {
  int64_t bytes = executor_->device_peak_bytes();
  for (const auto& field : batch_.fields)
    bytes -= static_cast<int64_t>(field.second.nbytes());
  return bytes;
}

double CudaVariant::step_s() const { return median(step_s_); }

// The batch lies on the GPU already, and is taken from there.
void CudaVariant::start() {
  executor_->start(
      {.step = number_++, .rate = kCudaRate, .batch = [&](int) { return batch_; }});
}

}  // namespace cohort::cli
