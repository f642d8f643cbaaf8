// SPDX-License-Identifier: Apache-2.0
// One rank of `cohort train`, from its environment to its exit code.
#include <ATen/Parallel.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>
#include <utility>

#include "cli/exit_code.h"
#include "cli/json_reporter.h"
#include "cli/model_counts.h"
#include "cli/rank_gpu.h"
#include "cli/rank_identities.h"
#include "cli/step_options.h"
#include "cli/stop_signals.h"
#include "cli/text_reporter.h"
#include "cli/train_command.h"
#include "cohort/checkpoint/load_weights.h"
#include "cohort/comm/world.h"
#include "cohort/core/error.h"
#include "cohort/core/fault_point.h"
#include "cohort/core/freed_memory.h"
#include "cohort/core/parse.h"
#include "cohort/elastic/membership.h"
#include "cohort/elastic/watched_store.h"
#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/cuda/cuda_math.h"
#include "cohort/nn/first_value.h"
#include "cohort/step/chain_specs.h"
#include "cohort/train/agent_pages.h"
#include "cohort/train/compute_threads.h"
#include "cohort/train/rank_loop.h"
#include "cohort/train/spare_gpu.h"
#include "recipes/checked_recipe.h"
#include "recipes/saved_model.h"
#include "recipes/text_data.h"

namespace cohort::cli {
namespace {

// Set by signals; lock-free, so a handler may write it.
std::atomic<int> stop_signal{0};

// Our launcher's zygote, this rank's parent; 0 under any other launcher.
std::atomic<pid_t> only_sender{0};

// The launcher asks all ranks to stop. A signal that someone sends to one rank is a
// fault of that rank: it dies of it, as it would without a handler.
void on_signal(int number, siginfo_t* info, void*) {
  const pid_t sender = only_sender.load();
  if (sender == 0 || info->si_pid == sender) {
    stop_signal.store(number);
    return;
  }
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void stop_on_signals(bool launched_by_us) {
  only_sender.store(launched_by_us ? ::getppid() : 0);
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;  // or a line of output could be lost
  for (int number : {SIGTERM, SIGUSR1, SIGINT, SIGHUP, SIGQUIT})
    sigaction(number, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);  // a closed stdout is not a crash
  release_stop_signals();
}

std::unique_ptr<Reporter> make_reporter(const TrainPlan& plan, Backlog* backlog) {
  const int64_t every = plan.config.get_int("log.every_steps");
  if (plan.args.json)
    return std::make_unique<JsonReporter>(every, plan.args.out, backlog);
  return std::make_unique<TextReporter>(
      TextReporterOptions{.recipe = plan.args.recipe,
                          .log_every = every,
                          .epochs = plan.config.get_int("epochs"),
                          .quiet = plan.args.quiet,
                          .out = plan.args.out,
                          .backlog = backlog});
}

BackupOptions backup_options(const TrainPlan& plan) {
  const Config& config = plan.config;
  const std::string memory = config.get_string("checkpoint.memory");
  const std::string metric = config.get_string("checkpoint.metric");
  return {.dir = config.get_string("checkpoint.dir"),
          .every_steps = config.get_int("checkpoint.every_steps"),
          .retention = {.last = config.get_int("checkpoint.keep"),
                        .every_steps = config.get_int("checkpoint.keep_every"),
                        .best = config.get_int("checkpoint.best"),
                        .metric = metric,
                        .better = metric == "accuracy" ? Retention::Better::kHigher
                                                       : Retention::Better::kLower},
          .resume = plan.args.resume,
          .async = config.get_bool("checkpoint.async"),
          .snapshot_every = config.get_int("snapshot.every_steps"),
          .memory = memory.empty() ? 0 : parse_bytes(memory, "checkpoint.memory"),
          .model = model_states(*plan.recipe, config)};
}

// A spare knows of no world yet: it is prepared for the one the run began with.
int planned_ranks(const TrainPlan& plan, const World& world, bool elastic) {
  if (!elastic) return world.size;
  return parse_ranks(plan.args.ranks.empty() ? "1" : plan.args.ranks);
}

TrainerOptions trainer_options(const TrainPlan& plan, const World& world, int ranks) {
  const Config& config = plan.config;
  const auto integer = [&](const char* key) { return config.get_int(key); };
  const auto real = [&](const char* key) { return config.get_float(key); };
  const int64_t reference = integer("schedule.reference_batch");
  const Config defaults = plan.recipe->defaults();
  const GeneratorOptions step = step_options(config, plan.args.exact);
  const std::string limit = config.get_string("memory.limit");
  return {.epochs = integer("epochs"),
          .max_steps = plan.args.max_steps,
          .batch = integer("batch"),
          .slices = step.slices,
          .seed = static_cast<uint64_t>(integer("seed")),
          .layout = parse_layout(plan.args.layout, ranks),
          .update = update_options(config),
          .rate = {.name = config.get_string("schedule.name"),
                   .base = real("optim.lr"),
                   .warmup_steps = integer("schedule.warmup_steps"),
                   .scale = config.get_string("schedule.scale"),
                   .batch = static_cast<double>(integer("batch")),
                   .reference_batch = static_cast<double>(
                       reference > 0 ? reference : defaults.get_int("batch")),
                   .total_steps = integer("schedule.total_steps"),
                   .step_every = integer("schedule.step_every"),
                   .gamma = real("schedule.gamma"),
                   .decay_steps = integer("schedule.decay_steps"),
                   .floor = real("schedule.floor")},
          .step = step,
          .execute = executor_options(config),
          .drift_every_steps = integer("drift.every_steps"),
          .memory_limit = limit.empty() ? 0 : parse_bytes(limit, "memory.limit"),
          .ranks_here = world.local_size,
          .elastic = config.get_string("elastic") == "on",
          .valid_every_epochs = integer("valid.every_epochs"),
          .save_initial = plan.args.save_initial,
          .save_final = plan.args.save_final,
          .sample_log = plan.args.sample_log,
          .history = history_path(plan.args),
          .backup = backup_options(plan),
          .started = plan.started,
          .begun = plan.begun};
}

bool has_stages(const TrainPlan& plan, int ranks) {
  return parse_layout(plan.args.layout, ranks).pp > 1;
}

// Each lane of a step is a stream, and the stages of a pipeline have many that wait for
// one another: with fewer queues than streams one could hold up another. CUDA reads
// this when it starts; more queues make that slower. Nor may NCCL make a connection
// while a stage waits for another: it would wait for the device.
void allow_streams(const TrainPlan& plan, int ranks) {
  if (!has_stages(plan, ranks)) return;
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  ::setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);
}

void choose_gpu(const TrainPlan& plan, const World& world, int ranks,
                ExecutorOptions& options) {
  if (plan.args.device != "cuda") return;
  allow_streams(plan, ranks);
  require_cuda("train");
  options.compute_on = ComputeOn::kCuda;
  options.gpu = gpu_of(world);
  set_cuda_math({.tf32 = plan.config.get_bool("tf32"),
                 .search = !plan.args.exact,
                 .exact = plan.args.exact});
}

// What the key is for ranks that share a GPU.
constexpr const char* kBucketKey = "step.bucket_bytes";
constexpr const char* kSharedBucket = "256M";

int64_t count_parameters(const Chain& chain) {
  int64_t sum = 0;
  for (const auto& spec : parameter_specs(chain)) sum += spec.numel();
  return sum;
}

ConnectOptions connect_options(const TrainPlan& plan) {
  ConnectOptions options{.backend = plan.args.backend};
  options.timeout = std::chrono::milliseconds(
      static_cast<int64_t>(1000 * plan.config.get_float("comm.timeout_s")));
  options.nccl_share_gpu = plan.config.get_bool("comm.nccl_share_gpu");
  return options;
}

// Stopped on request with its state saved, it can be run again.
int code_of(const DoneEvent& done, const BackupOptions& backup) {
  if (!backup.dir.empty() && !done.saved)
    throw CheckpointError(text("[train.checkpoint] ", backup.dir, ": step ", done.steps,
                               ", the last, is not saved; what is there is older"));
  if (done.stop_signal == 0) return 0;
  return done.saved ? kExitStopped : 128 + done.stop_signal;
}

// One rank of `cohort train`: what its loop asks for.
class RankRun final : public RankHost {
 public:
  explicit RankRun(const TrainPlan& plan)
      : plan_(plan),
        membership_(Membership::from_env()),
        connecting_(connect_options(plan)) {
    if (membership_) pages_.emplace(*membership_);
  }

  int run() {
    const bool spare = membership_ && membership_->is_spare();
    // The variables around a spare are of whoever started the command.
    const World given = spare ? World{} : world_from_env();
    if (membership_)
      stop_on_signals(/*launched_by_us=*/true);
    else
      release_stop_signals();  // there is nothing to save before its world stands
    const int ranks = planned_ranks(plan_, given, membership_ != nullptr);
    options_ = trainer_options(plan_, given, ranks);
    options_.membership = membership_.get();
    options_.pages = pages_ ? &*pages_ : nullptr;
    options_.backlog = &backlog_;
    choose_gpu(plan_, given, ranks, options_.execute);
    if (spare) options_.execute.gpu = kNoGpu;  // that of the rank it replaces
    options_.execute.faults = options_.backup.faults = &faults_;
    if (!spare)
      loading_ = begin_loading(*plan_.recipe, plan_.config, given.local_rank == 0);
    const auto done = RankLoop(*this, membership_.get()).run(given);
    return done ? with_backlog(code_of(*done, options_.backup)) : 0;
  }

  WorldTies connect(const World& world) override {
    WorldTies ties;
    ties.store = join(world, connecting_);
    if (membership_)
      ties.watched = std::make_unique<WatchedStore>(*ties.store, *membership_);
    Store& store = ties.watched ? *ties.watched : *ties.store;
    if (plan_.args.device == "cuda") ties.gpu.number = settle_gpu(world, store);
    ties.comm = on_gpu(cohort::connect(world, store, connecting_), ties.gpu);
    if (!membership_) stop_on_signals(world.launcher == "cohort");
    return ties;
  }

  std::unique_ptr<Trainer> make_trainer(Communicator* node) override {
    if (!loading_ && !data_.train)
      loading_ = begin_loading(*plan_.recipe, plan_.config, node == nullptr);
    options_.chain_of_part = [this](int part) { return make_chain(part); };
    chain_ = make_chain(/*part=*/0);
    if (!data_.train) data_ = finish_loading(*plan_.recipe, *loading_, node);
    options_.augment = data_.augment;
    take_text_to_continue();
    count_blocks();
    return std::make_unique<Trainer>(chain_, *data_.train, data_.valid.get(), options_,
                                     stop_signal);
  }

  Reporter& reporter() override {
    if (!reporter_) reporter_ = make_reporter(plan_, &backlog_);
    return *reporter_;
  }

  void introduce(Communicator& comm, Reporter* reporter,
                 const Trainer& trainer) override {
    const auto ranks = identities(comm);
    if (!reporter) return;
    if (comm.generation() > 0) return reporter->ranks(ranks);
    Config config = plan_.config;
    config.set_assignment(text("threads=", at::get_num_threads()));
    if (has_shared_bucket_) config.set(kBucketKey, kSharedBucket, "shared GPU");
    reporter->start({.config_json = config.to_json(),
                     .backend = std::string(comm.backend()),
                     .device = plan_.args.device,
                     .threads = at::get_num_threads(),
                     .ranks = ranks,
                     .data = data_.train->describe(),
                     .parameters = count_parameters(chain_),
                     .total_steps = trainer.total_steps(),
                     .steps_per_epoch = trainer.steps_per_epoch()});
    if (plan_.args.resume && options_.backup.dir.empty())
      reporter->note("--resume: there is no checkpoint.dir, so this run starts fresh");
    if (options_.backup.every_steps > 0 && options_.backup.dir.empty())
      reporter->note("checkpoint.every_steps: there is no checkpoint.dir to save in");
    if (connecting_.nccl_share_gpu && comm.backend() == "nccl")
      reporter->note(
          "comm.nccl_share_gpu: ranks that share a GPU are for tests; NCCL is slow so");
    const std::string why = why_no_graph(has_stages(plan_, comm.size()), over_host_);
    if (plan_.args.device == "cuda" && !why.empty()) reporter->note(why);
  }

 private:
  // Filled later by the engine, on each rank with what is its own.
  Chain make_chain(int part) const {
    const ModelsFilledLater later;
    Chain chain = checked_chain(*plan_.recipe, plan_.config, part_of_rank(part));
    const std::string weights = plan_.config.get_string("model.weights");
    if (!weights.empty()) load_weights(weights, chain);
    return chain;
  }

  void take_text_to_continue() {
    if (!plan_.args.sample) return;
    tokenizer_ = data_.tokenizer();
    options_.tokenizer = tokenizer_.get();
    options_.continuation = continuation_options(plan_.config, *plan_.args.sample);
  }

  TensorPart part_of_rank(int part) const {
    return tensor_part(plan_.config, options_.layout, part);
  }

  // Who replaces a rank takes a GPU when it has a world; the backend that is chosen
  // there depends on the GPUs of all.
  int settle_gpu(const World& world, Store& store) {
    int& mine = options_.execute.gpu;
    if (membership_)
      mine = cohort::settle_gpu(world, store, mine, cuda_device_count(),
                                connecting_.join_timeout);
    connecting_.gpu = cuda_device_id(mine);
    return mine;
  }

  std::unique_ptr<Communicator> on_gpu(std::unique_ptr<Communicator> comm,
                                       WorldGpu& gpu) {
    if (plan_.args.device != "cuda") return comm;
    auto able = with_tensors_of_gpu(std::move(comm), *gpu.number, connecting_,
                                    plan_.config.get_bool("comm.gpu_windows"));
    over_host_ = able.over_host;
    // On one GPU nothing is won by summing early, and each sum lets all ranks meet.
    if (able.has_windows && plan_.config.origin(kBucketKey) == "default") {
      has_shared_bucket_ = true;
      gpu.bucket_bytes = parse_bytes(kSharedBucket, kBucketKey);
    }
    return std::move(able.comm);
  }

  // Before anything is computed: what blocks need is known of a model without memory. A
  // model that cannot be counted is measured by the Trainer.
  // A rank of a pipeline computes a part of it.
  void count_blocks() {
    if (!options_.counted.empty()) return;
    const auto counts =
        count_model(*plan_.recipe, plan_.config, part_of_rank(0), *data_.train);
    if (!counts) return;
    options_.counted = needs_of(*counts);
    if (!plan_.counts_threads) return;
    const Layout& layout = options_.layout;
    const int slices = slices_for(options_.slices, layout, options_.batch);
    const double samples = static_cast<double>(options_.batch) / slices;
    const double flops = forward_flops(*counts).at(samples) / layout.pp;
    at::set_num_threads(compute_threads(flops, at::get_num_threads()));
  }

  // What this rank could not write is told last, when all else is done and saved.
  int with_backlog(int code) {
    const std::string trouble = backlog_.trouble();
    if (trouble.empty()) return code;
    if (code == 0) throw DataError(trouble + "; the run is done, its records are not");
    reporter_->note(trouble);
    return code;
  }

  const TrainPlan& plan_;
  std::unique_ptr<Membership> membership_;  // null: not elastic
  std::optional<AgentPages> pages_;
  ConnectOptions connecting_;
  std::string over_host_;  // why tensors of the GPU go there; empty: they do not
  bool has_shared_bucket_ = false;
  FaultPlan faults_ = FaultPlan::from_env();
  // A reporter that is being made cannot tell.
  Backlog backlog_{[this](const std::string& line) {
    if (reporter_) return reporter_->note(line);
    std::fprintf(stderr, "%s\n", line.c_str());
  }};
  TrainerOptions options_;
  std::unique_ptr<DataLoading> loading_;
  Chain chain_;
  DataSets data_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Reporter> reporter_;
};

}  // namespace

int run_train_rank(const TrainPlan& plan) {
  keep_freed_memory();
  const bool locks = plan.locks.empty() && world_from_env().rank == 0;
  const auto own = locks ? lock_folders(plan) : std::vector<FolderLock>{};
  if (locks && world_from_env().generation == 0) begin_afresh(plan);
  return RankRun(plan).run();
}

}  // namespace cohort::cli
