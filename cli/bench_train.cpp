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

#include "cli/bench_cuda.h"
#include "cli/bench_parts.h"
#include "cli/exit_of_error.h"
#include "cli/launch_command.h"
#include "cli/plain_loop.h"
#include "cohort/comm/peer_memory.h"
#include "cohort/comm/world.h"
#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/core/freed_memory.h"
#include "cohort/core/json.h"
#include "cohort/core/random.h"
#include "cohort/data/fashion_mnist.h"
#include "cohort/data/sampler.h"
#include "cohort/engine/executor.h"
#include "cohort/launch/agent.h"
#include "cohort/nn/models.h"
#include "cohort/optim/sgd.h"
#include "cohort/step/generator.h"
#include "cohort/step/layout.h"

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

Tensor noise(at::IntArrayRef shape, int rank) {
  Tensor x = at::empty(shape);
  fill_normal(x, RandomKey::of_path(1, "bench", rank), 0, 1);
  return x;
}

using Source = std::function<Batch(int64_t step, int slice)>;

// Where batches come from: one that stays, or the real files in the order of a run.
Source make_source(const Case& bench, Communicator& comm, int slices) {
  const int64_t samples = bench.batch_a_rank * comm.size() / slices;  // of a slice
  if (bench.name == "mlp100") {
    const Batch batch = Batch::of({{"input", noise({samples, 2048}, comm.rank())}});
    return [batch](int64_t, int) { return batch; };
  }
  if (bench.name == "resnet50-cifar") {
    const Batch batch = Batch::of({{"input", noise({samples, 3, 32, 32}, comm.rank())},
                                   {"target", at::arange(samples).remainder(10)}});
    return [batch](int64_t, int) { return batch; };
  }
  const std::shared_ptr<Dataset> data =
      open_fashion_mnist({}, cohort::Split::kTrain, &comm);
  const Sampler sampler({.size = data->size(),
                         .batch = bench.batch_a_rank * comm.size(),
                         .slices = slices});
  return [data, sampler](int64_t step, int slice) {
    return data->gather_all(sampler.slice(sampler.position(step), slice));
  };
}

// What one benchmark found, as seen by rank 0; seconds per step.
struct Row {
  double step_s = 0;
  double wait_s = 0;
  double samples = 0;
  double comm_hidden = 1;
  std::optional<double> no_comm_s = std::nullopt;
  std::optional<double> unsharded_s = std::nullopt;
  std::optional<double> plain_s = std::nullopt;
};

std::string json_row(const Row& row, const Case& bench, const Communicator& comm) {
  JsonObject object;
  object.add("case", bench.name)
      .add("backend", comm.backend())
      .add("ranks", comm.size())
      .add("step_ms", 1e3 * row.step_s)
      .add("samples_per_second", row.samples / row.step_s)
      .add("comm_hidden", row.comm_hidden)
      .add("wait_ms", 1e3 * row.wait_s);
  if (row.no_comm_s)
    object.add("no_comm_step_ms", 1e3 * *row.no_comm_s)
        .add("of_no_comm", *row.no_comm_s / row.step_s);
  if (row.unsharded_s)
    object.add("data_parallel_step_ms", 1e3 * *row.unsharded_s)
        .add("over_data_parallel", row.step_s / *row.unsharded_s);
  if (row.plain_s)
    object.add("plain_step_ms", 1e3 * *row.plain_s)
        .add("over_plain", row.step_s / *row.plain_s);
  return object.text();
}

std::string text_row(const Row& row, const Case& bench, const Communicator& comm) {
  const auto ms = [](double seconds) { return format_fixed(1e3 * seconds, 2) + " ms"; };
  const auto percent = [](double x) { return format_fixed(100 * x, 1) + " %"; };
  std::string out = text(bench.name, ", ", comm.size(), " ranks (", comm.backend(),
                         "): ", ms(row.step_s), " per step, ",
                         format_fixed(row.samples / row.step_s, 1), " samples/s");
  out += text("\n  waiting for others   ", ms(row.wait_s), " (",
              percent(row.comm_hidden), " of communication hidden)");
  if (row.no_comm_s)
    out += text("\n  no communication     ", ms(*row.no_comm_s), ": ",
                percent(*row.no_comm_s / row.step_s), " of its speed");
  if (row.unsharded_s)
    out += text("\n  shard=0, not exact   ", ms(*row.unsharded_s), ": ",
                format_fixed(row.step_s / *row.unsharded_s, 3), " times its step");
  if (row.plain_s)
    out += text("\n  plain LibTorch loop  ", ms(*row.plain_s),
                ", one rank: ", format_fixed(row.step_s / *row.plain_s, 3),
                " times its step");
  return out;
}

// One way of doing the same work, with its times.
struct Variant {
  std::function<void(int64_t step)> run;
  std::vector<double> seconds;
  std::vector<double> waits;
};

class Bench {
 public:
  Bench(const Case& bench, Communicator& comm, const BenchTrainArgs& args)
      : bench_(bench), comm_(comm), rule_(make_sgd({.momentum = 0.9})) {
    const Layout layout = parse_layout(args.layout, comm.size());
    const Layout plain = parse_layout("", comm.size());
    differs_ = layout.shard > 0 || args.exact;
    add_executor(layout, args.exact, true);
    if (comm.size() > 1) add_executor(plain, false, differs_);
    if (bench.name == "mlp100") {
      plain_ = std::make_unique<PlainLoop>(noise({bench.batch_a_rank, 2048}, 0));
      plain_variant_.run = [this](int64_t) { plain_->step(); };
    }
  }

  Row measure() {
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
  void add_executor(const Layout& layout, bool exact, bool communicate) {
    chains_.push_back(std::make_unique<Chain>(bench_.make()));
    const int slices = exact ? 8 : comm_.size();
    Schedule schedule =
        generate(specs_of(*chains_.back()), layout,
                 {.slices = slices,
                  .exact = exact,
                  .optimizer_states = static_cast<int>(rule_->states().size()),
                  .shares_memory = cohort::shares_memory(comm_),
                  .join_alignment = join_alignment(comm_)});
    const Source source = make_source(bench_, comm_, slices);
    executors_.push_back(
        std::make_unique<Executor>(*chains_.back(), std::move(schedule), *rule_, comm_,
                                   ExecutorOptions{.communicate = communicate}));
    Variant variant;
    variant.run = [this, source, i = executors_.size() - 1](int64_t step) {
      const StepResult result = executors_[i]->run(
          {.step = step, .rate = bench_.rate, .batch = [&](int slice) {
             return source(step, slice);
           }});
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
    variant.seconds.push_back(
        std::chrono::duration<double>(Clock::now() - begin).count());
  }

  // Rank 0 alone; the others sleep at the barrier.
  void run_plain() {
    if (comm_.rank() == 0)
      for (int i = 0; i < bench_.steps; ++i) time_step(plain_variant_);
    comm_.barrier().wait();
  }

  Row row(double communication_s) const {
    Row row{.step_s = median(variants_[0].seconds),
            .wait_s = median(variants_[0].waits)};
    row.samples = static_cast<double>(bench_.batch_a_rank * comm_.size());
    if (comm_.size() > 1)
      row.comm_hidden = std::clamp(1 - row.wait_s / communication_s, 0.0, 1.0);
    if (variants_.size() > 1)
      (differs_ ? row.unsharded_s : row.no_comm_s) = median(variants_[1].seconds);
    if (!plain_variant_.seconds.empty()) row.plain_s = median(plain_variant_.seconds);
    return row;
  }

  const Case& bench_;
  Communicator& comm_;
  std::unique_ptr<UpdateRule> rule_;
  bool differs_ = false;  // from plain data parallelism
  std::vector<std::unique_ptr<Chain>> chains_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<Variant> variants_;
  std::unique_ptr<PlainLoop> plain_;
  Variant plain_variant_;
  int64_t step_ = 0;
};

int bench_rank(const Case& bench, const BenchTrainArgs& args) {
  keep_freed_memory();
  const World world = world_from_env();
  // Ranks sleep while rank 0 runs the plain loop: that is no failure.
  const ConnectOptions options{.backend = args.backend,
                               .timeout = std::chrono::minutes(10)};
  const auto store = join(world, options);
  const auto comm = connect(world, *store, options);
  Bench run(bench, *comm, args);
  const Row row = run.measure();
  if (world.rank == 0) {
    const auto format = args.json ? &json_row : &text_row;
    std::puts(format(row, bench, *comm).c_str());
    std::fflush(stdout);
  }
  comm->barrier().wait();
  return 0;
}

}  // namespace

int run_bench_train(const BenchTrainArgs& args) {
  if (args.device == "cuda") return run_bench_cuda(args);
  if (args.device != "cpu")
    throw ConfigError(text("[bench] --device ", args.device, "; legal: cpu, cuda"));
  if (args.precision != "float32" || args.batch != 0 || !args.costs_out.empty() ||
      !args.costs.empty() || !args.links.empty() || args.kernels)
    throw ConfigError(
        "[bench] --precision, --batch, --costs, --costs-out, --links and --kernels go "
        "with --device cuda");
  const Case& bench = find_case(kCases, args.name, "");
  LaunchOptions options;
  options.ranks = parse_ranks(args.ranks.empty() ? "2" : args.ranks);
  options.json = args.json;
  options.threads = 1;
  options.pin = args.backend != "gloo";
  options.body = as_rank([&] { return bench_rank(bench, args); });
  return launch(options).exit_code;
}

}  // namespace cohort::cli
