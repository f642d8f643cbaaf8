// SPDX-License-Identifier: Apache-2.0
// One rank of `cohort train`, from its environment to its exit code.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "cli/json_reporter.h"
#include "cli/step_options.h"
#include "cli/text_reporter.h"
#include "cli/train_command.h"
#include "cohort/checkpoint/load_weights.h"
#include "cohort/comm/world.h"
#include "cohort/core/error.h"
#include "cohort/core/kept_memory.h"
#include "cohort/core/parse.h"
#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/cuda/cuda_step.h"
#include "cohort/train/trainer.h"

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

void stop_on_signals(const World& world) {
  only_sender.store(world.launcher == "cohort" ? ::getppid() : 0);
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;  // or a line of output could be lost
  for (int number : {SIGTERM, SIGUSR1, SIGINT, SIGHUP, SIGQUIT})
    sigaction(number, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);  // a closed stdout is not a crash
}

std::unique_ptr<Reporter> make_reporter(const TrainPlan& plan) {
  const int64_t every = plan.config.get_int("log.every_steps");
  if (plan.args.json) return std::make_unique<JsonReporter>(every, plan.args.out);
  return std::make_unique<TextReporter>(
      TextReporterOptions{.recipe = plan.args.recipe,
                          .log_every = every,
                          .epochs = plan.config.get_int("epochs"),
                          .quiet = plan.args.quiet,
                          .out = plan.args.out});
}

TrainerOptions trainer_options(const TrainPlan& plan, const World& world) {
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
          .layout = parse_layout(plan.args.layout, world.size),
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
          .started = plan.started};
}

// Ranks of a node take its GPUs in turn.
void choose_gpu(const TrainPlan& plan, const World& world, ExecutorOptions& options) {
  if (plan.args.device != "cuda") return;
  const std::string why = why_no_cuda();
  if (!why.empty())
    throw ConfigError(text("[train] --device cuda: ", why, "; legal here: cpu"));
  options.compute_on = ComputeOn::kCuda;
  options.gpu = world.local_rank % cuda_device_count();
  set_cuda_math({.tf32 = plan.config.get_bool("tf32"),
                 .search = !plan.args.exact,
                 .exact = plan.args.exact});
}

// Who the ranks are, at rank 0 and everywhere.
std::vector<RankIdentity> identities(Communicator& comm) {
  constexpr int64_t kBytes = 128;
  Tensor mine = at::zeros({kBytes}, at::kByte);
  auto* bytes = reinterpret_cast<char*>(mine.data_ptr<uint8_t>());
  const int64_t pid = ::getpid();
  std::memcpy(bytes, &pid, sizeof(pid));
  ::gethostname(bytes + sizeof(pid), kBytes - sizeof(pid) - 1);
  Tensor all = at::zeros({comm.size() * kBytes}, at::kByte);
  comm.all_gather(all, mine).wait();
  std::vector<RankIdentity> ranks;
  for (int r = 0; r < comm.size(); ++r) {
    const auto* row =
        reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>()) + r * kBytes;
    RankIdentity identity{.rank = r, .host = row + sizeof(pid)};
    identity.generation = comm.generation();
    std::memcpy(&identity.pid, row, sizeof(pid));
    ranks.push_back(std::move(identity));
  }
  return ranks;
}

int64_t count_parameters(const Chain& chain) {
  int64_t sum = 0;
  for (const auto& [name, tensor] : chain.parameters()) sum += tensor.numel();
  return sum;
}

ConnectOptions connect_options(const TrainPlan& plan) {
  ConnectOptions options{.backend = plan.args.backend};
  options.timeout = std::chrono::milliseconds(
      static_cast<int64_t>(1000 * plan.config.get_float("comm.timeout_s")));
  return options;
}

}  // namespace

int run_train_rank(const TrainPlan& plan) {
  keep_freed_memory();
  const World world = world_from_env();
  stop_on_signals(world);
  TrainerOptions options = trainer_options(plan, world);
  choose_gpu(plan, world, options.execute);
  auto loading = plan.recipe->load(plan.config, world.local_rank == 0);
  const ConnectOptions connecting = connect_options(plan);
  const auto store = join(world, connecting);
  const auto comm = connect(world, *store, connecting);
  const auto node = world.num_nodes > 1 ? comm->split(world.node_rank) : nullptr;

  Chain chain = plan.recipe->make_chain(plan.config);
  const std::string weights = plan.config.get_string("model.weights");
  if (!weights.empty()) load_weights(weights, chain);
  const DataSets data = loading->finish(node ? node.get() : comm.get());
  options.augment = data.augment;
  const auto reporter = world.rank == 0 ? make_reporter(plan) : nullptr;
  Trainer trainer(chain, *data.train, data.valid.get(), options, stop_signal);
  trainer.enter(*comm, reporter.get());
  const auto ranks = identities(*comm);
  if (reporter) {
    reporter->start({.config_json = plan.config.to_json(),
                     .backend = std::string(comm->backend()),
                     .device = plan.args.device,
                     .ranks = ranks,
                     .data = data.train->describe(),
                     .parameters = count_parameters(chain),
                     .total_steps = trainer.total_steps(),
                     .steps_per_epoch = trainer.steps_per_epoch()});
    if (plan.args.resume)
      reporter->note("--resume: nothing is saved, so this run starts fresh");
  }
  const DoneEvent done = trainer.fit();
  comm->barrier().wait();  // nobody leaves while others still look at its memory
  return done.stop_signal == 0 ? 0 : 128 + done.stop_signal;
}

}  // namespace cohort::cli
