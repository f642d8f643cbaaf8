// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_train.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "cli/bench_cuda.h"
#include "cli/bench_parts.h"
#include "cli/bench_recipe.h"
#include "cli/bench_steps.h"
#include "cli/exit_of_error.h"
#include "cli/launch_command.h"
#include "cli/plain_loop.h"
#include "cohort/comm/backends.h"
#include "cohort/comm/peer_memory.h"
#include "cohort/comm/world.h"
#include "cohort/core/error.h"
#include "cohort/core/freed_memory.h"
#include "cohort/core/nearest.h"
#include "cohort/core/parse.h"
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
  const int64_t samples = bench.batch_a_rank * comm.size() / slices;  // per slice
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

class CaseBench {
 public:
  CaseBench(const Case& bench, Communicator& comm, const BenchTrainArgs& args)
      : bench_(bench),
        comm_(comm),
        rule_(make_sgd({.momentum = 0.9})),
        work_{.name = std::string(bench.name),
              .samples = static_cast<double>(bench.batch_a_rank * comm.size()),
              .warmup = bench.warmup,
              .steps = bench.steps,
              .rate = bench.rate} {
    const Layout layout = parse_layout(args.layout, comm.size());
    work_.beside_data_parallel = layout.shard > 0 || args.exact;
    add(layout, args.exact, true);
    if (comm.size() > 1)
      add(parse_layout("", comm.size()), false, work_.beside_data_parallel);
    if (bench.name == "mlp100")
      plain_ = std::make_unique<PlainLoop>(noise({bench.batch_a_rank, 2048}, 0));
  }

  void run(bool json) {
    const BenchRow row = time_steps(work_, comm_, variants_, plain_.get());
    print_row(row, work_, comm_, json);
  }

 private:
  void add(const Layout& layout, bool exact, bool communicate) {
    auto chain = std::make_unique<Chain>(bench_.make());
    const int slices = exact ? 8 : comm_.size();
    Schedule schedule =
        generate(specs_of(*chain), layout,
                 {.slices = slices,
                  .exact = exact,
                  .optimizer_states = static_cast<int>(rule_->states().size()),
                  .shares_memory = cohort::shares_memory(comm_),
                  .join_alignment = join_alignment(comm_)});
    auto executor =
        std::make_unique<Executor>(*chain, std::move(schedule), *rule_, comm_,
                                   ExecutorOptions{.communicate = communicate});
    variants_.push_back({.chain = std::move(chain),
                         .executor = std::move(executor),
                         .batch = make_source(bench_, comm_, slices)});
  }

  const Case& bench_;
  Communicator& comm_;
  std::unique_ptr<UpdateRule> rule_;
  BenchWork work_;
  std::vector<BenchVariant> variants_;
  std::unique_ptr<PlainLoop> plain_;
};

int bench_rank(const Case& bench, const BenchTrainArgs& args) {
  keep_freed_memory();
  const World world = world_from_env();
  // Ranks sleep while rank 0 runs the plain loop: that is no failure.
  const ConnectOptions options{.backend = args.backend,
                               .timeout = std::chrono::minutes(10)};
  const auto store = join(world, options);
  const auto comm = connect(world, *store, options);
  CaseBench(bench, *comm, args).run(args.json);
  comm->barrier().wait();
  return 0;
}

const Case* case_of(const std::string& name) {
  const auto found = std::ranges::find(kCases, name, &Case::name);
  return found == kCases.end() ? nullptr : &*found;
}

// ConfigError with the nearest benchmark or recipe for a name that is neither.
const Recipe& recipe_of(const std::string& name, const RecipeList& recipes) {
  std::vector<std::string> legal;
  for (const Case& bench : kCases) legal.emplace_back(bench.name);
  for (const auto& recipe : recipes.all()) {
    if (recipe->name() == name) return *recipe;
    legal.emplace_back(recipe->name());
  }
  throw ConfigError(text("[bench] unknown benchmark or recipe '", name, "'; nearest: ",
                         nearest(name, legal), "; legal: ", join(legal, ", ")));
}

}  // namespace

int run_bench_train(const BenchTrainArgs& args, const RecipeList& recipes) {
  const Case* const bench = case_of(args.name);
  const bool on_cpu = args.device == "cpu";
  find_backend(args.backend, World{});
  if ((bench || !on_cpu) && (!args.set.empty() || !args.config.empty()))
    throw ConfigError(
        text("[bench] --set and --config go with a recipe on the "
             "processors: ",
             recipes.names()));
  if (args.device == "cuda") return run_bench_cuda(args);
  if (!on_cpu)
    throw ConfigError(text("[bench] --device ", args.device, "; legal: cpu, cuda"));
  if (args.precision != "float32" || args.batch != 0 || !args.costs_out.empty() ||
      !args.costs.empty() || !args.links.empty() || args.kernels)
    throw ConfigError(
        "[bench] --precision, --batch, --costs, --costs-out, --links and --kernels go "
        "with --device cuda");
  if (!bench) return run_bench_recipe(args, recipe_of(args.name, recipes));
  LaunchOptions options;
  options.ranks = parse_ranks(args.ranks.empty() ? "2" : args.ranks);
  require_whole_layers(bench->name, parse_layout(args.layout, options.ranks).tp);
  options.json = args.json;
  options.threads = 1;
  options.pin = args.backend != "gloo";
  options.body = as_rank([&] { return bench_rank(*bench, args); });
  return launch(options).exit_code;
}

}  // namespace cohort::cli
