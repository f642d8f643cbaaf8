// SPDX-License-Identifier: Apache-2.0
// Where a run goes on from, when no rank has its state any more.
#include <algorithm>
#include <tuple>
#include <utility>

#include "cohort/checkpoint/load.h"
#include "cohort/comm/gather_records.h"
#include "cohort/core/error.h"
#include "cohort/core/parse.h"
#include "cohort/train/backup.h"
#include "cohort/train/backup_state.h"

namespace cohort {
namespace {

std::string state_or_empty(const RunState& run, const char* key) {
  const auto found = run.state.find(key);
  return found == run.state.end() ? "" : found->second;
}

}  // namespace

// A snapshot, or the folder of a checkpoint.
struct Backup::Source {
  SnapshotTitle title;
  std::string path;  // empty: the snapshot

  friend auto record_fields(Alike<Source> auto& source) {
    auto& title = source.title;
    return std::tie(title.step, title.generation, title.world, source.path);
  }
};

// Rank 0's: furthest first, at equal steps the snapshot; or why the run cannot go on.
struct Backup::SourceList {
  std::string refused, damaged;
  std::vector<Source> sources;

  friend auto record_fields(Alike<SourceList> auto& list) {
    return std::tie(list.refused, list.damaged, list.sources);
  }
};

Backup::SourceList Backup::list_sources(const SnapshotSet& snapshots, int64_t at_most) {
  std::vector<Source> sources;
  for (const auto& title : snapshots.whole()) sources.push_back({title, ""});
  const auto found =
      saves() ? list_checkpoints(options_.dir) : std::vector<CheckpointInfo>{};
  const bool goes_back = at_most != kNoLimit;  // its own, then
  const bool may_resume = options_.resume || goes_back || world_.comm->generation() > 0;
  if (!may_resume && !found.empty()) return {.refused = why_not_fresh(options_.dir)};
  std::string trouble;
  for (auto info = found.rbegin(); info != found.rend(); ++info) {
    if (!info->trouble.empty()) {
      note(text("passed over: ", info->trouble));
      if (trouble.empty()) trouble = info->trouble;
      continue;
    }
    if (const auto why = refusal(*info); !why.empty()) return {.refused = why};
    sources.push_back({{.step = info->step}, info->path});
  }
  if (sources.empty() && !trouble.empty()) return {.damaged = trouble};
  std::erase_if(sources, [&](const auto& one) { return one.title.step > at_most; });
  std::stable_sort(sources.begin(), sources.end(), [](const auto& a, const auto& b) {
    return a.title.step > b.title.step;
  });
  return {.sources = std::move(sources)};
}

// Weights of other plans (imported ones) have no batch and fit any run.
std::string Backup::refusal(const CheckpointInfo& saved) const {
  const RunState& run = saved.manifest.run;
  const SamplerOptions& asked = world_.sampler->options();
  const auto differs = [&](const char* key, const std::string& was,
                           const std::string& is) {
    return was.empty() || was == is
               ? std::string()
               : text("[train.checkpoint] ", saved.path, " was saved with ", key, "=",
                      was, ", asked for is ", key, "=", is,
                      "; a run goes on with the same");
  };
  const std::string batch = state_or_empty(run, kBatchState);
  if (batch.empty()) return "";
  for (const auto& why :
       {differs("seed", std::to_string(run.seed), std::to_string(asked.seed)),
        differs("batch", batch, std::to_string(asked.batch)),
        differs("samples of data", state_or_empty(run, kSamplesState),
                std::to_string(asked.size)),
        differs("data", state_or_empty(run, kDataState), world_.data)})
    if (!why.empty()) return why;
  return "";
}

RunState Backup::load(const Source& source, const SnapshotSet& snapshots,
                      std::vector<StatePiece> pieces) {
  if (source.path.empty()) {
    const std::string missing = snapshots.fill(source.title, pieces);
    if (!missing.empty()) throw CheckpointError(missing);
    return snapshots.run(source.title);
  }
  Checkpoint saved(source.path);
  load_pieces(saved, pieces);
  return saved.manifest().run;
}

// Every rank tries; what one of them cannot read is passed over by all. Returns the
// first trouble of any rank.
std::string Backup::try_source(const Source& source, const SnapshotSet& snapshots,
                               RunState& run) {
  reach("backup.load");
  const auto loaded = std::make_shared<RunState>();
  const auto task = [source, snapshots, loaded,
                     pieces = world_.runner->state(Holding::kHeld)]() -> std::string {
    try {
      *loaded = load(source, snapshots, pieces);
      return "";
    } catch (const CheckpointError& error) {
      return error.what();
    }
  };
  const auto all =
      text_exchange(*world_.comm, {.left_behind = &left_behind_}).work(task);
  run = *loaded;
  for (const auto& trouble : all)
    if (!trouble.empty()) return trouble;
  return "";
}

void Backup::go_on_from(const Source& source, const RunState& run) {
  world_.runner->set_small_state(state_or_empty(run, kRunnerState));
  world_.runner->refresh();
  if (!source.path.empty()) saved_step_ = run.step;
  note(source.path.empty()
           ? text("goes on from the snapshot of step ", run.step, " in memory")
           : text("goes on from ", source.path, " (step ", run.step, ", saved by ",
                  run.layout, ")"));
}

std::optional<RunState> Backup::restore(int64_t at_most) {
  const SnapshotSet snapshots = snapshots_->found();
  const bool leads = world_.comm->rank() == 0;
  const auto listed = gather_records(
      text_exchange(*world_.comm),
      leads ? list_sources(snapshots, at_most) : SourceList{},
      "[train.checkpoint] rank 0's list of what is saved cannot be read")[0];
  if (!listed.refused.empty()) throw ConfigError(listed.refused);
  if (!listed.damaged.empty()) throw CheckpointError(listed.damaged);
  std::string first_trouble;
  for (const Source& source : listed.sources) {
    RunState run;
    const std::string trouble = try_source(source, snapshots, run);
    if (trouble.empty()) {
      go_on_from(source, run);
      return run;
    }
    note(text("passed over: ", trouble));
    if (first_trouble.empty()) first_trouble = trouble;
  }
  if (!first_trouble.empty()) throw CheckpointError(first_trouble);
  if (options_.resume && saves())
    note(text("nothing is saved in ", options_.dir, ": starts anew"));
  return std::nullopt;
}

std::string why_not_fresh(const std::string& dir) {
  const auto found = list_checkpoints(dir);
  if (found.empty()) return "";
  return text("[train.checkpoint] ", dir, " has checkpoints up to step ",
              found.back().step,
              "; go on from them with --resume, or take another checkpoint.dir");
}

std::string why_not_resumed(const std::string& dir, std::span<const TensorSpec> state) {
  const auto trouble_of = [&](const CheckpointInfo& info) -> std::string {
    if (!info.trouble.empty()) return info.trouble;
    try {
      const Checkpoint saved(info.path);
      for (const auto& tensor : state) require_fit(saved, tensor);
      return "";
    } catch (const CheckpointError& error) {
      return error.what();
    }
  };
  const auto found = list_checkpoints(dir);
  std::string newest;
  for (auto info = found.rbegin(); info != found.rend(); ++info) {
    const std::string trouble = trouble_of(*info);
    if (trouble.empty()) return "";
    if (newest.empty()) newest = trouble;
  }
  return newest;
}

int saved_slices(const std::string& dir) {
  const auto newest = latest_checkpoint(dir);
  if (!newest) return 0;
  const std::string slices =
      state_or_empty(Checkpoint(*newest).manifest().run, kSlicesState);
  return static_cast<int>(try_parse_int(slices).value_or(0));
}

}  // namespace cohort
