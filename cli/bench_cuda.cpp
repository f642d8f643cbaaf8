// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_cuda.h"

#include <ATen/ATen.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "cli/bench_parts.h"
#include "cli/rank_gpu.h"
#include "cli/step_options.h"
#include "cohort/comm/world.h"
#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/core/json.h"
#include "cohort/engine/cuda/cuda_math.h"
#include "cohort/engine/executor.h"
#include "cohort/nn/models.h"
#include "cohort/step/generator.h"

namespace cohort::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kCudaRounds = 3;  // the variants take turns
constexpr int kSteps = 20;      // a round and variant
constexpr int kWarmup = 3;      // before the capture
constexpr double kRate = 0.01;
const UpdateOptions kUpdate{.momentum = 0.9};

struct CudaCase {
  std::string_view name;
  int64_t batch;
  int64_t pixels;
  int64_t classes;
  Chain (*make)();
};

Chain make_gpu_resnet50() { return make_resnet({}, {}); }
Chain make_small_resnet50() {
  return make_resnet({.classes = 10, .small_images = true}, {});
}

constexpr std::array<CudaCase, 2> kCudaCases = {
    {{"resnet50", 256, 224, 1000, make_gpu_resnet50},
     {"resnet50-cifar", 256, 32, 10, make_small_resnet50}}};

at::ScalarType dtype_of(const std::string& precision) {
  const at::ScalarType dtype = parse_dtype(precision, at::ScalarType::Undefined);
  if (dtype != at::ScalarType::Undefined) return dtype;
  throw ConfigError(
      text("[bench] --precision ", precision, "; legal: float32, bf16, fp16"));
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// One way of running the same steps.
class CudaVariant {
 public:
  CudaVariant(const CudaCase& bench, const BenchTrainArgs& args, const Batch& batch,
              bool capture)
      : chain_(bench.make()),
        batch_(batch),
        store_(join(world_, {})),
        comm_(connect(world_, *store_, {.backend = "local"})),
        rule_(make_update_rule(kUpdate)) {
    const GeneratorOptions step{.vote = true,
                                .precision = {.compute = dtype_of(args.precision)},
                                .memory = MemoryIn::kDevice,
                                .optimizer_states = 1};
    ExecutorOptions options{.update = kUpdate, .decay = {.weight_decay = 1e-4}};
    options.usual_count = static_cast<double>(batch.count);
    options.compute_on = ComputeOn::kCuda;
    options.capture = capture;
    executor_ = std::make_unique<Executor>(
        chain_, generate(specs_of(chain_), Layout{}, step), *rule_, *comm_, options);
    first_s_ = seconds_of([this] {
      start();
      executor_->result();
    });
    for (int i = 0; i < kWarmup + 2; ++i) start();
    executor_->result();
  }

  // Steps behind one another, as training runs them.
  void take_turn() {
    step_s_.push_back(seconds_of([this] {
                        for (int i = 0; i < kSteps; ++i) start();
                        executor_->result();
                      }) /
                      kSteps);
  }

  // How long the host is busy with one step: nothing is queued before it.
  double host_s() {
    std::vector<double> times;
    for (int i = 0; i < kSteps; ++i) {
      times.push_back(seconds_of([this] { start(); }));
      executor_->result();
    }
    return median(times);
  }

  double step_s() const { return median(step_s_); }
  double first_s() const { return first_s_; }
  double loss() { return executor_->result().loss; }
  int64_t peak_bytes() const { return executor_->device_peak_bytes(); }

 private:
  // The batch lies on the GPU already, and is taken from there.
  void start() {
    executor_->start(
        {.step = number_++, .rate = kRate, .batch = [&](int) { return batch_; }});
  }

  Chain chain_;
  Batch batch_;
  World world_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Communicator> comm_;
  std::unique_ptr<UpdateRule> rule_;
  std::unique_ptr<Executor> executor_;
  std::vector<double> step_s_;
  double first_s_ = 0;
  int64_t number_ = 0;
};

struct CudaRow {
  int64_t batch = 0;
  double step_s = 0, host_s = 0, uncaptured_s = 0, uncaptured_host_s = 0, first_s = 0;
  double loss = 0;
  int64_t peak_bytes = 0;
};

CudaRow measure(const CudaCase& bench, const BenchTrainArgs& args) {
  CudaRow row{.batch = args.batch > 0 ? args.batch : bench.batch};
  const Tensor input = at::randn({row.batch, 3, bench.pixels, bench.pixels});
  const Tensor target = at::arange(row.batch).remainder(bench.classes);
  const Batch batch =
      Batch::of({{"input", input.to(at::kCUDA)}, {"target", target.to(at::kCUDA)}});
  CudaVariant captured(bench, args, batch, true);
  row.peak_bytes = captured.peak_bytes();  // before there are two of them
  CudaVariant uncaptured(bench, args, batch, false);
  for (int round = 0; round < kCudaRounds; ++round) {
    captured.take_turn();
    uncaptured.take_turn();
  }
  row.step_s = captured.step_s();
  row.uncaptured_s = uncaptured.step_s();
  row.host_s = captured.host_s();
  row.uncaptured_host_s = uncaptured.host_s();
  row.first_s = captured.first_s();
  row.loss = captured.loss();
  return row;
}

std::string cuda_json_row(const CudaRow& row, const CudaCase& bench,
                          const BenchTrainArgs& args) {
  JsonObject object;
  object.add("case", bench.name)
      .add("device", "cuda")
      .add("precision", args.precision)
      .add("batch", row.batch)
      .add("step_ms", 1e3 * row.step_s)
      .add("samples_per_second", static_cast<double>(row.batch) / row.step_s)
      .add("host_ms", 1e3 * row.host_s)
      .add("host_share", row.host_s / row.step_s)
      .add("uncaptured_step_ms", 1e3 * row.uncaptured_s)
      .add("uncaptured_host_ms", 1e3 * row.uncaptured_host_s)
      .add("first_step_s", row.first_s)
      .add("peak_memory_bytes", row.peak_bytes)
      .add("loss", row.loss);
  return object.text();
}

std::string cuda_text_row(const CudaRow& row, const CudaCase& bench,
                          const BenchTrainArgs& args) {
  const auto ms = [](double seconds) { return format_fixed(1e3 * seconds, 2) + " ms"; };
  const auto rate = [&](double seconds) {
    return format_fixed(static_cast<double>(row.batch) / seconds, 0) + " samples/s";
  };
  return text(bench.name, ", batch ", row.batch, ", ", args.precision,
              ", one GPU: ", ms(row.step_s), " a step, ", rate(row.step_s),
              "\n  host busy            ", ms(row.host_s), ", ",
              format_fixed(100 * row.host_s / row.step_s, 2), " % of the step",
              "\n  kernel by kernel     ", ms(row.uncaptured_s), ", ",
              rate(row.uncaptured_s), ", host ", ms(row.uncaptured_host_s),
              "\n  memory, first step   ",
              format_bytes(static_cast<double>(row.peak_bytes)), ", ",
              format_duration(row.first_s));
}

}  // namespace

int run_bench_cuda(const BenchTrainArgs& args) {
  const CudaCase& bench = find_case(kCudaCases, args.name, " for GPUs");
  if (!args.layout.empty() || args.exact || (!args.ranks.empty() && args.ranks != "1"))
    throw ConfigError(
        "[bench] --device cuda with --layout, --exact or more than one "
        "rank; a step on a GPU has one rank: -n 1");
  require_cuda("bench");
  set_cuda_math({.tf32 = true, .search = true});
  const CudaRow row = measure(bench, args);
  const auto format = args.json ? &cuda_json_row : &cuda_text_row;
  std::puts(format(row, bench, args).c_str());
  return 0;
}

}  // namespace cohort::cli
