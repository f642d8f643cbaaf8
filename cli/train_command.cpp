// SPDX-License-Identifier: Apache-2.0
#include "cli/train_command.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <limits>

#include "cli/exit_code.h"
#include "cli/model_outline.h"
#include "cli/rank_gpu.h"
#include "cli/step_options.h"
#include "cohort/checkpoint/checkpoint.h"
#include "cohort/comm/backends.h"
#include "cohort/comm/world.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/flat_state.h"
#include "cohort/launch/agent.h"
#include "cohort/launch/error_file.h"
#include "cohort/step/generator.h"
#include "cohort/step/layout.h"
#include "cohort/train/backup.h"
#include "cohort/train/step_memory.h"
#include "cohort/update_rule.h"

namespace cohort::cli {
namespace {

[[noreturn]] void refuse_later(std::string_view what) {
  throw ConfigError(text("[train] ", what, " comes with a later release"));
}

void refuse_what_is_not_there(const TrainArgs& args, const Config& config) {
  if (args.device != "cpu" && args.device != "cuda")
    throw ConfigError(text("[train] --device ", args.device, "; legal: cpu, cuda"));
  // Whether there is a GPU only a rank may ask: CUDA does not survive a fork.
  if (args.device == "cuda" && !cuda_is_built())
    throw ConfigError(
        "[train] --device cuda: no CUDA in this build; legal here: cpu; a build "
        "against a LibTorch with libtorch_cuda has it");
  if (args.watch) refuse_later("--watch");
  if (!args.profile.empty()) refuse_later("--profile");
  make_update_rule({.name = config.get_string("optim.name")});
}

// A file that is only written at the end of a long run must be possible now.
void require_writable(std::string_view flag, const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored) ||
      ::access(folder.c_str(), W_OK) != 0 ||
      std::filesystem::is_directory(path, ignored))
    throw ConfigError(text("[train] ", flag, " ", path,
                           ": cannot be written; legal: a file in a folder that is "
                           "there and writable"));
}

// Made if it is not there.
void require_folder(std::string_view key, const std::string& path) {
  if (path.empty()) return;
  std::error_code trouble;
  try {
    make_folder(path, ErrorKind::kConfig);
    if (std::filesystem::is_directory(path, trouble) &&
        ::access(path.c_str(), W_OK) == 0)
      return;
  } catch (const ConfigError&) {
  }
  throw ConfigError(text("[train] ", key, "=", path,
                         ": cannot be written; legal: a folder that is writable, or "
                         "can be made"));
}

// Weights are written beside and renamed: over a regular file, or none.
void require_replaceable(std::string_view flag, const std::string& path) {
  require_writable(flag, path);
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) &&
      !std::filesystem::is_regular_file(path, ignored))
    throw ConfigError(
        text("[train] ", flag, " ", path,
             ": is no regular file; legal: a new file, or one to replace"));
}

// What a run on one node that we start has.
Layout layout_of(const TrainArgs& args) {
  return parse_layout(args.layout, parse_ranks(args.ranks.empty() ? "1" : args.ranks));
}

// Whether somebody can replace a rank: our own agent, on this node, where ranks reach
// one another without anything that a lost rank breaks for good.
std::string why_not_elastic(const TrainArgs& args, bool launched) {
  if (parse_nodes(args.nodes).max > 1) return text("--nnodes ", args.nodes);
  if (args.backend == "mpi") return "--backend mpi";
  if (launched) return "ranks that another launcher started";
  return "";
}

// elastic=on is the default: where it cannot be had it is off, unless asked for.
void settle_elastic(TrainPlan& plan, bool launched) {
  if (plan.config.get_string("elastic") == "off") return;
  const std::string why = why_not_elastic(plan.args, launched);
  if (why.empty()) return;
  for (const auto& assignment : plan.args.set)
    if (assignment == "elastic=on")
      throw ConfigError(
          text("[train] elastic=on with ", why,
               "; legal: with ranks on the processors or the GPUs of one node, started "
               "by `cohort train -n`"));
  plan.config.set_assignment("elastic=off");
}

// Fixed for the whole run, however many ranks it has later: what the run that is gone
// on with has, else one a data-parallel rank.
void settle_slices(TrainPlan& plan, const LaunchOptions& options) {
  if (plan.config.get_int("slices") > 0) return;
  const std::string dir = plan.config.get_string("checkpoint.dir");
  int slices = plan.args.resume && !dir.empty() ? saved_slices(dir) : 0;
  if (plan.args.exact) slices = step_options(plan.config, true).slices;
  if (options.min_nodes == options.max_nodes)
    slices = slices_for(
        slices, parse_layout(plan.args.layout, options.ranks * options.max_nodes),
        plan.config.get_int("batch"));
  if (slices > 0) plan.config.set_assignment(text("slices=", slices));
}

// What NCCL would refuse in each rank, later and in other words. Only where it was
// asked for: to look takes as long as a rank needs to start CUDA.
// Returns how many ranks there may be, also of a run that grows.
int check_gpus(const TrainPlan& plan, int ranks) {
  constexpr int kAny = std::numeric_limits<int>::max();
  if (plan.args.device != "cuda" || plan.args.backend != "nccl") return kAny;
  const bool shares = plan.config.get_bool("comm.nccl_share_gpu");
  const NodeGpus gpus = look_for_gpus();
  const std::string why = why_no_nccl_ranks(gpus, ranks, shares);
  if (!why.empty()) throw ConfigError(text("[train] ", why));
  return shares ? kAny : gpus.count;
}

// What depends on the number of ranks, where it is known before they start.
void check_world(const TrainPlan& plan, const LaunchOptions& options) {
  if (options.min_nodes != options.max_nodes)
    return require_blocks(*plan.recipe, plan.config, Layout{});
  const Layout layout =
      parse_layout(plan.args.layout, options.ranks * options.max_nodes);
  GeneratorOptions step = step_options(plan.config, plan.args.exact);
  step.slices = slices_for(step.slices, layout, plan.config.get_int("batch"));
  ExecutorOptions execute;
  if (plan.args.device == "cuda") execute.compute_on = ComputeOn::kCuda;
  step.memory = memory_for(execute);
  generate({}, layout, step);
  make_update_rule(update_options(plan.config));  // refuses what there is not
  require_slices(plan.config.get_int("batch"), step.slices);
  require_blocks(*plan.recipe, plan.config, layout);
}

// What ranks would find out, each for itself.
void check_saved(const TrainPlan& plan) {
  const std::string dir = plan.config.get_string("checkpoint.dir");
  if (!plan.args.resume || dir.empty()) return;
  const auto outline = outline_of(*plan.recipe, plan.config);
  if (!outline) return;
  std::vector<TensorSpec> state = outline->trained;
  for (const auto* more : {&outline->frozen, &outline->buffers})
    state.insert(state.end(), more->begin(), more->end());
  const auto rule = make_update_rule(update_options(plan.config));
  for (const auto& moment : rule->states())
    for (TensorSpec like : outline->trained) {
      like.name = moment_name(moment.name, like.name);
      state.push_back(std::move(like));
    }
  const std::string why = why_not_resumed(dir, state);
  if (!why.empty()) throw CheckpointError(why);
}

// Kernels give other bits with another number of threads: an exact run fixes it.
int threads_of(const TrainPlan& plan) {
  const auto threads = static_cast<int>(plan.config.get_int("threads"));
  if (!plan.args.exact) return threads;
  if (threads > 1)
    throw ConfigError(text("[train] threads=", threads,
                           " with --exact; legal: 1, or 0, which is 1 then"));
  return 1;
}

// Whether a rank takes fewer threads than it may have. Who sets OMP_NUM_THREADS has
// chosen; our launcher sets it for ranks, so this is asked before it does.
bool counts_threads(const TrainArgs& args, const Config& config) {
  const char* const given = std::getenv("OMP_NUM_THREADS");
  return config.get_int("threads") == 0 && !args.exact && args.device == "cpu" &&
         (!given || !*given);
}

LaunchOptions launch_options(const TrainPlan& plan) {
  const TrainArgs& args = plan.args;
  const NodeRange nodes = parse_nodes(args.nodes);
  LaunchOptions options;
  options.ranks = parse_ranks(args.ranks.empty() ? "1" : args.ranks);
  options.min_nodes = nodes.min;
  options.max_nodes = nodes.max;
  options.rdzv = args.rdzv;
  options.rdzv_token = args.rdzv_token;
  const bool elastic = plan.config.get_string("elastic") == "on";
  options.max_restarts = restarts_of(args.max_restarts, elastic);
  const auto detect = plan.config.get_float("elastic.detect_s");
  options.elastic = {
      .on = elastic,
      .spares = static_cast<int>(plan.config.get_int("elastic.spares")),
      .detect = std::chrono::milliseconds(static_cast<int64_t>(1000 * detect)),
      .replace = plan.config.get_bool("elastic.replace"),
      .max_ranks = static_cast<int>(plan.config.get_int("elastic.max_ranks"))};
  options.grace = std::chrono::milliseconds(static_cast<int64_t>(args.grace_s * 1000));
  options.usr1_stops = true;
  options.pin = nodes.max == 1 && args.backend != "gloo";
  options.threads = threads_of(plan);
  options.json = args.json;
  if (!args.out.empty()) options.log_dir = args.out + "/logs";
  options.body = as_rank([&plan] { return run_train_rank(plan); });
  return options;
}

// How many ranks there may be. Parts of tensors come and go together, and so do the
// stages that have them; a pipeline alone can have fewer stages.
void settle_range(const TrainPlan& plan, int most, LaunchOptions& options) {
  ElasticOptions& elastic = options.elastic;
  const bool one_node = options.max_nodes == 1;
  const Layout layout = one_node ? layout_of(plan.args) : Layout{};
  if (layout.tp > 1) elastic.team = {.stages = layout.pp, .parts = layout.tp};
  const int each = elastic.team.ranks();
  if (elastic.max_ranks % each != 0)
    throw ConfigError(text("[train] elastic.max_ranks=", elastic.max_ranks,
                           " with --layout tp=", layout.tp, ",pp=", layout.pp,
                           "; legal: a multiple of ", each));
  elastic.min_ranks = each;
  if (elastic.max_ranks == 0)
    elastic.max_ranks = step_options(plan.config, plan.args.exact).slices * each;
  elastic.max_ranks = std::min(elastic.max_ranks, most / each * each);
}

// A rank that died of a signal, or stopped because of one that nobody sent to the
// agent, is a lost rank; what a rank said itself stays. Where too few are left to go on
// here, more can from what is saved.
int code_of_run(const TrainPlan& plan, const LaunchResult& result) {
  const std::string dir = plan.config.get_string("checkpoint.dir");
  const bool is_loss = result.exit_code > 128 || result.exit_code == kExitLostPeer;
  const auto saved =
      result.too_few && is_loss && !dir.empty() ? latest_checkpoint(dir) : std::nullopt;
  if (saved) {
    std::fprintf(
        stderr, "%s\n",
        text("[train] ", *saved, " is saved: run it again with --resume").c_str());
    return kExitStopped;
  }
  if (result.failures.empty() || result.stop_signal != 0) return result.exit_code;
  return result.exit_code > 128 ? kExitLostPeer : result.exit_code;
}

void write_config(const TrainPlan& plan) {
  const std::string& out = plan.args.out;
  if (out.empty()) return;
  make_folder(out, ErrorKind::kConfig);
  write_file_atomically(out + "/config.json", plan.config.to_json() + "\n",
                        ErrorKind::kConfig);
}

}  // namespace

TrainPlan make_plan(const TrainArgs& args, const RecipeList& recipes) {
  const Recipe& recipe = recipes.find(args.recipe);
  const auto age = std::chrono::duration_cast<std::chrono::microseconds>(process_age());
  TrainPlan plan{.args = args,
                 .recipe = &recipe,
                 .config = recipe.defaults(),
                 .started = std::chrono::system_clock::now() - age,
                 .begun = std::chrono::steady_clock::now() - age,
                 .locks = {}};
  take_settings(args.config, args.set, plan.config);
  plan.counts_threads = counts_threads(args, plan.config);
  find_backend(args.backend, World{});
  refuse_what_is_not_there(args, plan.config);
  if (args.sample)
    recipes.require_continuation("[train] --sample", recipe, plan.config);
  require_replaceable("--save-initial", args.save_initial);
  require_replaceable("--save-final", args.save_final);
  require_writable("--sample-log", args.sample_log);
  require_folder("checkpoint.dir", plan.config.get_string("checkpoint.dir"));
  return plan;
}

std::vector<FolderLock> lock_folders(const TrainPlan& plan) {
  const std::string saved = plan.config.get_string("checkpoint.dir");
  const std::string& out = plan.args.out;
  std::vector<FolderLock> locks;
  if (!saved.empty()) locks.emplace_back(saved);
  if (out.empty()) return locks;
  make_folder(out, ErrorKind::kConfig);
  if (saved.empty() || !std::filesystem::equivalent(saved, out))
    locks.emplace_back(out);
  return locks;
}

void begin_afresh(const TrainPlan& plan) {
  if (plan.args.resume) return;
  const std::string saved = plan.config.get_string("checkpoint.dir");
  const std::string why = saved.empty() ? "" : why_not_fresh(saved);
  if (!why.empty()) throw ConfigError(why);
  if (!plan.args.out.empty()) std::filesystem::remove(history_path(plan.args));
}

std::string history_path(const TrainArgs& args) {
  return args.out.empty() ? "" : args.out + "/history.log";
}

int run_train(const TrainArgs& args, const RecipeList& recipes) {
  TrainPlan plan = make_plan(args, recipes);
  const bool launched = args.ranks.empty() && world_from_env().launcher != "none";
  settle_elastic(plan, launched);
  if (launched) {
    write_config(plan);
    // Our own launcher says it in the environment; another one may not know.
    if (const int threads = threads_of(plan); threads > 0) at::set_num_threads(threads);
    try {
      return run_train_rank(plan);
    } catch (const std::exception& error) {
      write_error_file(error.what());
      throw;
    }
  }
  LaunchOptions options = launch_options(plan);
  check_world(plan, options);
  const int most_ranks = check_gpus(plan, options.ranks);
  // Over several nodes it is the first rank that does.
  if (options.max_nodes == 1) {
    plan.locks = lock_folders(plan);
    begin_afresh(plan);
    check_saved(plan);
  }
  plan.recipe->prepare(plan.config);
  settle_slices(plan, options);
  settle_range(plan, most_ranks, options);
  write_config(plan);
  return code_of_run(plan, launch(options));
}

}  // namespace cohort::cli
