// SPDX-License-Identifier: Apache-2.0
#include "cli/train_command.h"

#include <ATen/Parallel.h>

#include <cstdio>
#include <exception>

#include "cli/exit_of_error.h"
#include "cli/model_outline.h"
#include "cli/resolve_run.h"
#include "cli/run_folders.h"
#include "cli/train_rank.h"
#include "cohort/checkpoint/checkpoint.h"
#include "cohort/checkpoint/load_weights.h"
#include "cohort/core/error.h"
#include "cohort/engine/flat_state.h"
#include "cohort/launch/error_file.h"
#include "cohort/train/backup.h"
#include "cohort/update_rule.h"

namespace cohort::cli {
namespace {

std::vector<TensorSpec> tensors_of(const ModelOutline& outline) {
  std::vector<TensorSpec> all = outline.trained;
  for (const auto* more : {&outline.frozen, &outline.buffers})
    all.insert(all.end(), more->begin(), more->end());
  return all;
}

// What ranks would find out, each for itself: here, and below.
void check_first_weights(const ResolvedRun& run) {
  if (run.weights.empty()) return;
  const auto outline = outline_of(*run.recipe, run.config);
  if (!outline) return;
  const std::string note = check_weights(run.weights, tensors_of(*outline));
  if (!note.empty() && !run.quiet) std::fprintf(stderr, "%s\n", note.c_str());
}

void check_saved(const ResolvedRun& run) {
  const BackupOptions& backup = run.trainer.backup;
  if (!backup.resume || backup.dir.empty()) return;
  const auto outline = outline_of(*run.recipe, run.config);
  if (!outline) return;
  std::vector<TensorSpec> state = tensors_of(*outline);
  const auto rule = make_update_rule(run.trainer.update);
  for (const auto& moment : rule->states())
    for (TensorSpec like : outline->trained) {
      like.name = moment_name(moment.name, like.name);
      state.push_back(std::move(like));
    }
  const std::string why = why_not_resumed(backup.dir, state);
  if (!why.empty()) throw CheckpointError(why);
}

// A rank that died of a signal, or stopped because of one that nobody sent to the
// agent, is a lost rank; what a rank said itself stays. Where too few are left to go on
// here, more can from what is saved.
int code_of_run(const LaunchResult& result, const std::string& saved_in) {
  const bool is_loss = result.exit_code > 128 || result.exit_code == kExitLostPeer;
  const auto saved = result.too_few && is_loss && !saved_in.empty()
                         ? latest_checkpoint(saved_in)
                         : std::nullopt;
  if (saved) {
    std::fprintf(
        stderr, "%s\n",
        text("[train] ", *saved, " is saved: run it again with --resume").c_str());
    return kExitStopped;
  }
  if (result.failures.empty() || result.stop_signal != 0) return result.exit_code;
  return result.exit_code > 128 ? kExitLostPeer : result.exit_code;
}

// Another launcher has started this process as a rank.
int run_as_rank(const ResolvedRun& run) {
  write_config(run.out, run.config);
  // Our own launcher says it in the environment; another one may not know.
  if (run.threads > 0) at::set_num_threads(run.threads);
  try {
    const auto locks = take_folders_as_rank(run);
    return run_train_rank(run);
  } catch (const std::exception& error) {
    write_error_file(error.what());
    throw;
  }
}

}  // namespace

int run_train(const TrainArgs& args, const RecipeList& recipes) {
  const ResolvedRun run = resolve_run(args, recipes);
  if (run.is_rank) return run_as_rank(run);
  LaunchOptions launching = run.launch;
  const bool one_node = launching.max_nodes == 1;
  const BackupOptions& backup = run.trainer.backup;
  const auto locks =
      one_node ? lock_folders(backup.dir, run.out) : std::vector<FolderLock>{};
  check_first_weights(run);
  if (one_node) {
    begin_afresh(backup, run.trainer.history);
    check_saved(run);
  }
  run.recipe->prepare(run.config);
  write_config(run.out, run.config);
  launching.body = as_rank([&] {
    // Over several nodes the first rank takes the folders, not an agent.
    const auto of_rank =
        one_node ? std::vector<FolderLock>{} : take_folders_as_rank(run);
    return run_train_rank(run);
  });
  return code_of_run(launch(launching), backup.dir);
}

}  // namespace cohort::cli
