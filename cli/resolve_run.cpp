// SPDX-License-Identifier: Apache-2.0
#include "cli/resolve_run.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "cli/exit_of_error.h"
#include "cli/model_outline.h"
#include "cli/node_gpus.h"
#include "cli/run_folders.h"
#include "cli/step_options.h"
#include "cohort/comm/backends.h"
#include "cohort/comm/world.h"
#include "cohort/core/error.h"
#include "cohort/core/parse.h"
#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/step/generator.h"
#include "cohort/train/memory_limit.h"
#include "cohort/update_rule.h"
#include "recipes/saved_model.h"
#include "recipes/text_data.h"

namespace cohort::cli {
namespace {

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds));
}

// Flags and keys on their way to a run. Keys change until run() has been called.
class Resolver {
 public:
  Resolver(const TrainArgs& args, const Recipe& recipe, const Config& config,
           bool is_rank)
      : args_(args),
        recipe_(recipe),
        config_(config),
        is_rank_(is_rank),
        block_seconds_(block_seconds(config)) {
    check_flags();
    settle_elastic();
  }

  ResolvedRun run() {
    const auto age =
        std::chrono::duration_cast<std::chrono::microseconds>(process_age());
    const bool counts = counts_threads();
    LaunchOptions launch = launch_options();
    if (!is_rank_) {
      const auto layout = known_layout(launch);
      check_world(layout);
      const int most_ranks = check_gpus(launch.ranks);
      settle_slices(layout);
      settle_range(layout, most_ranks, launch);
    }
    TrainerOptions trainer = trainer_options();
    trainer.started = std::chrono::system_clock::now() - age;
    trainer.begun = std::chrono::steady_clock::now() - age;
    return {.recipe = &recipe_,
            .config = config_,
            .on_gpu = on_gpu(),
            .layout = args_.layout,
            .is_rank = is_rank_,
            .trainer = std::move(trainer),
            .connect = connect_options(),
            .launch = std::move(launch),
            .weights = config_.get_string("model.weights"),
            .math = {.tf32 = config_.get_bool("tf32"),
                     .search = !args_.exact,
                     .exact = args_.exact},
            .gpu_windows = config_.get_bool("comm.gpu_windows"),
            .is_bucket_free = config_.origin("step.bucket_bytes") == "default",
            .threads = threads(),
            .counts_threads = counts,
            .json = args_.json,
            .quiet = args_.quiet,
            .out = args_.out};
  }

 private:
  int64_t integer(const char* key) const { return config_.get_int(key); }
  double real(const char* key) const { return config_.get_float(key); }
  const std::string& word(const char* key) const { return config_.get_string(key); }
  int64_t bytes(const char* key) const {
    return word(key).empty() ? 0 : parse_bytes(word(key), key);
  }
  bool on_gpu() const { return args_.device == "cuda"; }
  int ranks() const { return parse_ranks(args_.ranks.empty() ? "1" : args_.ranks); }

  void check_flags() const {
    find_backend(args_.backend, World{});
    if (args_.device != "cpu" && args_.device != "cuda")
      throw ConfigError(text("[train] --device ", args_.device, "; legal: cpu, cuda"));
    // Whether there is a GPU only a rank may ask: CUDA does not survive a fork.
    if (on_gpu() && !cuda_is_built())
      throw ConfigError(
          "[train] --device cuda: no CUDA in this build; legal here: cpu; a build "
          "against a LibTorch with libtorch_cuda has it");
    const UpdateOptions update = update_options(recipe_, config_);
    make_update_rule(update);
    if (on_gpu() && update.own)
      throw ConfigError(text("[train] --device cuda: ", recipe_.name(),
                             " has an update rule of its own, and GPUs have no kernel "
                             "for it; legal: --device cpu"));
    require_replaceable("--save-initial", args_.save_initial);
    require_replaceable("--save-final", args_.save_final);
    require_writable("--sample-log", args_.sample_log);
    require_folder("checkpoint.dir", word("checkpoint.dir"));
  }

  // Whether somebody can replace a rank: our own agent, on this node, where ranks reach
  // one another without anything that a lost rank breaks for good.
  std::string why_not_elastic() const {
    if (parse_nodes(args_.nodes).max > 1) return text("--nnodes ", args_.nodes);
    if (args_.backend == "mpi") return "--backend mpi";
    if (is_rank_) return "ranks that another launcher started";
    return "";
  }

  // elastic=on is the default: where it cannot be had it is off, unless asked for.
  void settle_elastic() {
    if (word("elastic") == "off") return;
    const std::string why = why_not_elastic();
    if (why.empty()) return;
    if (std::ranges::find(args_.set, "elastic=on") != args_.set.end())
      throw ConfigError(
          text("[train] elastic=on with ", why,
               "; legal: with ranks on the processors or the GPUs of one node, started "
               "by `cohort train -n`"));
    config_.set_assignment("elastic=off");
  }

  // Kernels give other bits with another number of threads: an exact run fixes it.
  int threads() const {
    const auto threads = static_cast<int>(integer("threads"));
    if (!args_.exact) return threads;
    if (threads > 1)
      throw ConfigError(text("[train] threads=", threads,
                             " with --exact; legal: 1, or 0, which is 1 then"));
    return 1;
  }

  // Whether a rank takes fewer threads than it may have. Who sets OMP_NUM_THREADS has
  // chosen; our launcher sets it for ranks, so this is asked before it does.
  bool counts_threads() const {
    const char* const given = std::getenv("OMP_NUM_THREADS");
    return integer("threads") == 0 && !args_.exact && !on_gpu() && (!given || !*given);
  }

  LaunchOptions launch_options() const {
    const NodeRange nodes = parse_nodes(args_.nodes);
    const bool elastic = word("elastic") == "on";
    LaunchOptions options;
    options.ranks = ranks();
    options.min_nodes = nodes.min;
    options.max_nodes = nodes.max;
    options.rdzv = args_.rdzv;
    options.rdzv_token = args_.rdzv_token;
    options.max_restarts = restarts_of(args_.max_restarts, elastic);
    options.elastic = {.on = elastic,
                       .spares = static_cast<int>(integer("elastic.spares")),
                       .detect = milliseconds_of(real("elastic.detect_s")),
                       .replace = config_.get_bool("elastic.replace"),
                       .max_ranks = static_cast<int>(integer("elastic.max_ranks"))};
    options.grace = milliseconds_of(args_.grace_s);
    options.usr1_stops = true;
    options.pin = nodes.max == 1 && args_.backend != "gloo";
    options.threads = threads();
    options.json = args_.json;
    if (!args_.out.empty()) options.log_dir = args_.out + "/logs";
    return options;
  }

  // None where nobody knows before ranks start how many there will be.
  std::optional<Layout> known_layout(const LaunchOptions& launch) const {
    if (launch.min_nodes != launch.max_nodes) return std::nullopt;
    return parse_layout(args_.layout, launch.ranks * launch.max_nodes);
  }

  GeneratorOptions step() const {
    GeneratorOptions step = step_options(config_, args_.exact);
    step.pipeline.costs = block_seconds_;
    return step;
  }

  void check_world(const std::optional<Layout>& layout) const {
    GeneratorOptions step = this->step();
    if (!layout) return require_blocks(recipe_, config_, step, std::nullopt);
    step.slices = slices_for(step.slices, *layout, integer("batch"));
    step.memory = memory_for(execute());
    generate({}, *layout, step);
    make_update_rule(update_options(recipe_, config_));  // refuses an unknown rule
    require_slices(integer("batch"), step.slices);
    require_blocks(recipe_, config_, step, layout);
  }

  // What NCCL would refuse in each rank, later and in other words. Only where it was
  // asked for: to look takes as long as a rank needs to start CUDA.
  // Returns how many ranks there may be, also of a run that grows.
  int check_gpus(int ranks) const {
    constexpr int kAny = std::numeric_limits<int>::max();
    if (!on_gpu() || args_.backend != "nccl") return kAny;
    const bool shares = config_.get_bool("comm.nccl_share_gpu");
    const NodeGpus gpus = look_for_gpus();
    const std::string why = why_no_nccl_ranks(gpus, ranks, shares);
    if (!why.empty()) throw ConfigError(text("[train] ", why));
    return shares ? kAny : gpus.count;
  }

  // Fixed for the whole run, however many ranks it has later: what the run that is gone
  // on with has, else one per data-parallel rank.
  void settle_slices(const std::optional<Layout>& layout) {
    if (integer("slices") > 0) return;
    const std::string& dir = word("checkpoint.dir");
    int slices = args_.resume && !dir.empty() ? saved_slices(dir) : 0;
    if (args_.exact) slices = step().slices;
    if (layout) slices = slices_for(slices, *layout, integer("batch"));
    if (slices > 0) config_.set_assignment(text("slices=", slices));
  }

  // How many ranks there may be. Those that hold one copy of the model between them,
  // stages and parts of tensors, come and go together.
  void settle_range(const std::optional<Layout>& known, int most,
                    LaunchOptions& launch) const {
    ElasticOptions& elastic = launch.elastic;
    const Layout layout = launch.max_nodes == 1 ? known.value() : Layout{};
    elastic.team = {.stages = layout.pp, .parts = layout.tp};
    const int each = elastic.team.ranks();
    if (elastic.on && elastic.max_ranks % each != 0)
      throw ConfigError(text("[train] elastic.max_ranks=", elastic.max_ranks,
                             " with --layout tp=", layout.tp, ",pp=", layout.pp,
                             "; legal: a multiple of ", each));
    elastic.min_ranks = each;
    if (elastic.max_ranks == 0) elastic.max_ranks = step().slices * each;
    elastic.max_ranks = std::min(elastic.max_ranks, most / each * each);
  }

  ExecutorOptions execute() const {
    ExecutorOptions options = executor_options(config_);
    if (on_gpu()) options.compute_on = ComputeOn::kCuda;
    return options;
  }

  RateOptions rate() const {
    const int64_t reference = integer("schedule.reference_batch");
    return {.name = word("schedule.name"),
            .base = real("optim.lr"),
            .warmup_steps = integer("schedule.warmup_steps"),
            .scale = word("schedule.scale"),
            .batch = static_cast<double>(integer("batch")),
            .reference_batch = static_cast<double>(
                reference > 0 ? reference : recipe_.defaults().get_int("batch")),
            .total_steps = integer("schedule.total_steps"),
            .step_every = integer("schedule.step_every"),
            .gamma = real("schedule.gamma"),
            .decay_steps = integer("schedule.decay_steps"),
            .floor = real("schedule.floor"),
            .own = recipe_.make_rate(config_)};
  }

  BackupOptions backup() const {
    const std::string& metric = word("checkpoint.metric");
    return {.dir = word("checkpoint.dir"),
            .every_steps = integer("checkpoint.every_steps"),
            .retention = {.last = integer("checkpoint.keep"),
                          .every_steps = integer("checkpoint.keep_every"),
                          .best = integer("checkpoint.best"),
                          .metric = metric,
                          .better = metric == "accuracy" ? Retention::Better::kHigher
                                                         : Retention::Better::kLower},
            .resume = args_.resume,
            .async = config_.get_bool("checkpoint.async"),
            .snapshot_every = integer("snapshot.every_steps"),
            .memory = bytes("checkpoint.memory"),
            .model = model_states(recipe_, config_)};
  }

  TrainerOptions trainer_options() const {
    const GeneratorOptions step = this->step();
    TrainerOptions options;
    options.epochs = integer("epochs");
    options.max_steps = args_.max_steps;
    options.batch = integer("batch");
    options.slices = step.slices;
    options.seed = static_cast<uint64_t>(integer("seed"));
    options.update = update_options(recipe_, config_);
    options.rate = rate();
    options.step = step;
    options.execute = execute();
    options.drift_every_steps = integer("drift.every_steps");
    options.memory_limit = bytes("memory.limit");
    options.elastic = word("elastic") == "on";
    options.valid_every_epochs = integer("valid.every_epochs");
    if (args_.sample)
      options.continuation = continuation_options(config_, *args_.sample);
    options.save_initial = args_.save_initial;
    options.save_final = args_.save_final;
    options.sample_log = args_.sample_log;
    if (!args_.out.empty()) options.history = args_.out + "/history.log";
    options.backup = backup();
    return options;
  }

  ConnectOptions connect_options() const {
    ConnectOptions options{.backend = args_.backend};
    options.timeout = milliseconds_of(real("comm.timeout_s"));
    options.nccl_share_gpu = config_.get_bool("comm.nccl_share_gpu");
    return options;
  }

  const TrainArgs& args_;
  const Recipe& recipe_;
  Config config_;
  const bool is_rank_;
  const std::vector<double> block_seconds_;
};

}  // namespace

ResolvedRun resolve_run(const TrainArgs& args, const RecipeList& recipes) {
  const Recipe& recipe = recipes.find(args.recipe);
  Config config = recipe.defaults();
  take_settings(args.config, args.set, config);
  if (args.sample) recipes.require_continuation("[train] --sample", recipe, config);
  const bool is_rank = args.ranks.empty() && world_from_env().launcher != "none";
  return Resolver(args, recipe, config, is_rank).run();
}

ResolvedRun resolve_rank(const TrainArgs& args, const Recipe& recipe,
                         const Config& config) {
  return Resolver(args, recipe, config, /*is_rank=*/true).run();
}

}  // namespace cohort::cli
