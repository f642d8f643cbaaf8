// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/checkpoint/save.h"
#include "cohort/communicator.h"
#include "cohort/core/fault_point.h"
#include "cohort/data/sampler.h"
#include "cohort/engine/step_runner.h"
#include "cohort/train/background_save.h"
#include "cohort/train/page_holder.h"
#include "cohort/train/reporter.h"
#include "cohort/train/snapshots.h"

namespace cohort {

struct BackupOptions {
  std::string dir;          // for checkpoints; all ranks see it; empty: none
  int64_t every_steps = 0;  // 0: only in finish()
  Retention retention;
  bool resume = false;
  // Training stops for one memory copy instead of the write, which costs a third piece
  // of memory as large as the state.
  bool async = true;
  int64_t snapshot_every = 0;  // steps; 0: none. Costs memory for three states.
  int64_t memory = 0;  // bytes that all ranks here may take for that; 0: what is free
  // What checkpoints also have in RunState::state: of which model they are.
  std::map<std::string, std::string> model = {};

  // A checkpoint is written after that step.
  bool is_due(int64_t step) const {
    return !dir.empty() && every_steps > 0 && step % every_steps == 0;
  }
};

// What a backup sees of a world; borrowed until end() or the next begin().
struct BackupWorld {
  Communicator* comm = nullptr;
  StepRunner* runner = nullptr;
  const Sampler* sampler = nullptr;
  std::string layout;            // for people
  std::string data;              // which data set: a run goes on with the same
  Reporter* reporter = nullptr;  // null but on the rank that speaks
};

// Keeps the state of a run where a crash does not reach it: as snapshots in memory that
// the agent holds, and as checkpoints on a disk. Each rank has one, for the life
// of the process and all its worlds.
//
// All ranks call begin() when a world and its runner are there, restore() if none of
// them has the state, after_step() after each commit, finish() at the end. end(), or
// the destructor, cuts off a write that is under way; the run may be over by then, or
// only its world.
//
// Failure: a checkpoint that cannot be written is reported, and the run goes on.
// CommError when a peer is lost: the step is committed all the same. Thread safety:
// none; what it does in the background it does on threads of its own.
class Backup {
 public:
  // `pages` may be null: nobody is there to hold snapshots, and none are taken.
  // `faults` may be null; they are reached as "backup.*", and by the disk.
  Backup(BackupOptions options, PageHolder* pages, FaultPlan* faults = nullptr,
         std::unique_ptr<Disk> disk = real_disk());
  ~Backup();

  // ConfigError, in the first world, if snapshots do not fit into their memory.
  void begin(const BackupWorld& world);

  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  // Fills the runner's state: from the newest snapshot that all ranks of a world have
  // completed, or the newest whole checkpoint, whichever is further; what is damaged is
  // named and passed over. Nullopt, and nothing has changed, if there is none.
  // `at_most`: steps that what it finds may have.
  //
  // ConfigError if the checkpoint is of another run: other seed, batch or data; or if
  // there are some and nobody asked for --resume. CheckpointError if there are some and
  // none can be loaded.
  std::optional<RunState> restore(int64_t at_most = kNoLimit);

  // The state after that step is known to be good: a snapshot is taken of it in
  // after_step(), and kept until another is.
  void pin(int64_t step);

  // Collective: snapshots of later steps are damaged.
  void forget_after(int64_t step);

  // A run that begins, or goes on from a file: the state it begins with, so that it can
  // begin again.
  void start(const RunState& run);

  // `run` has the step, metrics, and what the trainer wants back in `state`; the backup
  // adds the rest.
  void after_step(const RunState& run);

  // Waits for what is under way and saves this step, unless it is saved. True if it is
  // there now, on every rank alike.
  bool finish(const RunState& run);

  void end();

 private:
  bool saves() const { return !options_.dir.empty(); }
  bool writes_behind() const {
    return saves() && options_.async && options_.every_steps > 0;
  }
  int num_slots() const;
  RunState complete(RunState run) const;
  void check_memory();
  int64_t greatest(int64_t mine);
  bool may_write(int64_t step);
  void write_behind(const RunState& run, std::shared_ptr<SnapshotPages> pages);
  void save_now(const RunState& run);
  PatienceOptions patience(const std::string& what);
  void wait_for_writer();
  bool reach(std::string_view point);  // whether a bit is to be flipped
  void report(const SaveOutcome& outcome);
  void note(const std::string& line);

  struct Source;
  struct SourceList;
  SourceList list_sources(const SnapshotSet& snapshots, int64_t at_most);
  std::string refusal(const CheckpointInfo& saved) const;
  static RunState load(const Source& source, const SnapshotSet& snapshots,
                       std::vector<StatePiece> pieces);
  std::string try_source(const Source& source, const SnapshotSet& snapshots,
                         RunState& run);
  void go_on_from(const Source& source, const RunState& run);

  BackupOptions options_;
  PageHolder* pages_;
  FaultPlan* faults_;
  std::atomic<int> rank_{0};
  std::unique_ptr<Disk> disk_;
  BackupWorld world_;
  std::shared_ptr<Communicator> group_;  // the writer's own
  std::unique_ptr<Snapshots> snapshots_;
  BackgroundSave saving_;
  int64_t pinned_ = -1;      // step
  int64_t saved_step_ = -1;  // that of the newest checkpoint this process saw whole
  bool said_busy_ = false;
  // Writes of worlds that were lost, on a slow disk: the destructor waits for them.
  std::vector<std::future<std::string>> left_behind_;
};

// A run that goes on with no other must not begin in a folder with checkpoints: why
// not, as one line; empty if it may.
std::string why_not_fresh(const std::string& dir);

// A run with such a state can go on from none of the checkpoints in a folder: why not
// from the newest, as one line; empty if it can, or there is none.
std::string why_not_resumed(const std::string& dir, std::span<const TensorSpec> state);

// The slices of the batch that the newest checkpoint in a folder was made with, which a
// run that goes on from it should take over. 0: nobody knows.
int saved_slices(const std::string& dir);

}  // namespace cohort
