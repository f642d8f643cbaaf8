// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_train.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cli/exit_code.h"
#include "cli/launch_command.h"
#include "cli/plain_loop.h"
#include "cohort/comm/world.h"
#include "cohort/core/error.h"
#include "cohort/core/json.h"
#include "cohort/core/nearest.h"
#include "cohort/core/random.h"
#include "cohort/data/fashion_mnist.h"
#include "cohort/data/sampler.h"
#include "cohort/engine/executor.h"
#include "cohort/launch/agent.h"
#include "cohort/launch/error_file.h"
#include "cohort/nn/models.h"
#include "cohort/optim/sgd.h"
#include "cohort/step/generator.h"

namespace cohort::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRounds = 3;  // the variants take turns, so that drift hits all alike

struct Case {
  std::string_view name;
  int64_t batch_a_rank;
  int warmup;
  int steps;  // a round and variant
  double rate;
  Chain (*make)();
};

Chain make_mlp100() { return make_linear_stack({.width = 2048, .depth = 6}, {}); }
Chain make_resnet50() { return make_resnet({.classes = 10}, {}); }
Chain make_fashion() { return make_cnn({}, {}); }

constexpr std::array<Case, 3> kCases = {
    {{"mlp100", 8, 3, 10, 0.01, make_mlp100},
     {"resnet50-cifar", 16, 1, 3, 0.01, make_resnet50},
     {"fashion", 64, 20, 150, 0.05, make_fashion}}};

const Case& find_case(const std::string& name) {
  std::vector<std::string> legal;
  for (const auto& entry : kCases) {
    if (entry.name == name) return entry;
    legal.emplace_back(entry.name);
  }
  throw ConfigError(text("[bench] unknown benchmark '", name, "'; nearest: ",
                         nearest(name, legal),
                         "; legal: mlp100, resnet50-cifar, fashion"));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

Tensor noise(at::IntArrayRef shape, int rank) {
  Tensor x = at::empty(shape);
  fill_normal(x, RandomKey::of_path(1, "bench", rank), 0, 1);
  return x;
}

// Where batches come from: one that stays, or the real files in the order of a run.
std::function<Batch(int64_t step, int slice)> make_source(const Case& bench,
                                                          Communicator& comm) {
  const int rank = comm.rank();
  if (bench.name == "mlp100") {
    const Batch batch{noise({bench.batch_a_rank, 2048}, rank), {}};
    return [batch](int64_t, int) { return batch; };
  }
  if (bench.name == "resnet50-cifar") {
    const Batch batch{noise({bench.batch_a_rank, 3, 32, 32}, rank),
                      at::arange(bench.batch_a_rank).remainder(10)};
    return [batch](int64_t, int) { return batch; };
  }
  const std::shared_ptr<Dataset> data =
      open_fashion_mnist({}, cohort::Split::kTrain, &comm);
  const Sampler sampler({.size = data->size(),
                         .batch = bench.batch_a_rank * comm.size(),
                         .slices = comm.size()});
  return [data, sampler](int64_t step, int slice) {
    return data->gather(sampler.slice(sampler.position(step), slice));
  };
}

// One way of doing the same work, with its times.
struct Variant {
  std::function<void(int64_t step)> run;
  std::vector<double> seconds;
  std::vector<double> waits;
};

class Bench {
 public:
  Bench(const Case& bench, Communicator& comm)
      : bench_(bench), comm_(comm), rule_(make_sgd({.momentum = 0.9})) {
    source_ = make_source(bench, comm);
    add_executor(true);
    if (comm.size() > 1) add_executor(false);
    if (bench.name == "mlp100") {
      plain_ = std::make_unique<PlainLoop>(noise({bench.batch_a_rank, 2048}, 0));
      plain_variant_.run = [this](int64_t) { plain_->step(); };
    }
  }

  // Returns the row on rank 0.
  JsonObject measure() {
    warm_up();
    for (int round = 0; round < kRounds; ++round) {
      for (auto& variant : variants_) take_turn(variant);
      if (plain_) run_plain();
    }
    std::vector<double> alone;
    for (int i = 0; i < 5; ++i)
      alone.push_back(executors_[0]->time_communication().count());
    return row(median(alone));
  }

 private:
  void add_executor(bool communicate) {
    chains_.push_back(std::make_unique<Chain>(bench_.make()));
    Schedule schedule = generate(specs_of(*chains_.back()), {.dp = comm_.size()},
                                 {.slices = comm_.size()});
    executors_.push_back(std::make_unique<Executor>(
        *chains_.back(), std::move(schedule), *rule_, comm_,
        ExecutorOptions{.first_slice = comm_.rank(), .communicate = communicate}));
    Variant variant;
    variant.run = [this, i = executors_.size() - 1](int64_t step) {
      const StepResult result = executors_[i]->run(
          {.step = step,
           .rate = bench_.rate,
           .batch = [&](int slice) { return source_(step, slice); }});
      variants_[i].waits.push_back(result.split.wait);
    };
    variants_.push_back(std::move(variant));
  }

  void warm_up() {
    for (auto& variant : variants_) {
      for (int i = 0; i < bench_.warmup; ++i) variant.run(step_++);
      variant.waits.clear();
      comm_.barrier().wait();
    }
    if (plain_ && comm_.rank() == 0)
      for (int i = 0; i < bench_.warmup; ++i) plain_->step();
    comm_.barrier().wait();
  }

  void take_turn(Variant& variant) {
    comm_.barrier().wait();
    for (int i = 0; i < bench_.steps; ++i) time_step(variant);
    comm_.barrier().wait();
  }

  void time_step(Variant& variant) {
    const auto begin = Clock::now();
    variant.run(step_++);
    variant.seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }

  // Rank 0 alone; the others sleep at the barrier.
  void run_plain() {
    if (comm_.rank() == 0)
      for (int i = 0; i < bench_.steps; ++i) time_step(plain_variant_);
    comm_.barrier().wait();
  }

  JsonObject row(double communication_s) const {
    const double step = median(variants_[0].seconds);
    const double wait = median(variants_[0].waits);
    const double samples = static_cast<double>(bench_.batch_a_rank * comm_.size());
    JsonObject row;
    row.add("case", bench_.name)
        .add("backend", comm_.backend())
        .add("ranks", comm_.size())
        .add("step_ms", 1e3 * step)
        .add("samples_per_second", samples / step)
        .add("comm_hidden",
             comm_.size() > 1 ? std::clamp(1 - wait / communication_s, 0.0, 1.0) : 1.0)
        .add("wait_ms", 1e3 * wait);
    if (variants_.size() > 1) {
      const double free = median(variants_[1].seconds);
      row.add("no_comm_step_ms", 1e3 * free).add("of_no_comm", free / step);
    }
    if (plain_) {
      const double plain = median(plain_variant_.seconds);
      row.add("plain_step_ms", 1e3 * plain).add("over_plain", step / plain);
    }
    return row;
  }

  const Case& bench_;
  Communicator& comm_;
  std::unique_ptr<UpdateRule> rule_;
  std::function<Batch(int64_t, int)> source_;
  std::vector<std::unique_ptr<Chain>> chains_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<Variant> variants_;
  std::unique_ptr<PlainLoop> plain_;
  Variant plain_variant_;
  int64_t step_ = 0;
};

int bench_rank(const Case& bench, const BenchTrainArgs& args) {
  const World world = world_from_env();
  // Ranks sleep while rank 0 runs the plain loop: that is no failure.
  const ConnectOptions options{.backend = args.backend,
                               .timeout = std::chrono::minutes(10)};
  const auto store = join(world, options);
  const auto comm = connect(world, *store, options);
  Bench run(bench, *comm);
  const JsonObject row = run.measure();
  if (world.rank == 0) {
    std::puts(row.text().c_str());
    std::fflush(stdout);
  }
  comm->barrier().wait();
  return 0;
}

}  // namespace

int run_bench_train(const BenchTrainArgs& args) {
  const Case& bench = find_case(args.name);
  LaunchOptions options;
  options.ranks = parse_ranks(args.ranks);
  options.json = args.json;
  options.threads = 1;
  options.body = [&] {
    try {
      return bench_rank(bench, args);
    } catch (const std::exception& error) {
      write_error_file(error.what());
      return exit_code_of(error);
    }
  };
  return launch(options).exit_code;
}

}  // namespace cohort::cli
