// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/backup.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "cohort/checkpoint/faulty_disk.h"
#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/core/memory.h"
#include "cohort/core/parse.h"
#include "cohort/train/backup_state.h"

namespace cohort {
namespace {

// What ranks tell one another before a write.
constexpr int64_t kFree = 0;
constexpr int64_t kBusy = 1;
constexpr int64_t kThere = 2;  // that step is saved already

constexpr std::chrono::duration<double> kFirstWord{2};  // after waiting for a disk

std::string join_numbers(const std::vector<int>& numbers) {
  std::vector<std::string> words;
  for (const int number : numbers) words.push_back(std::to_string(number));
  return join(words, ", ");
}

// What a damaged memory would do.
void flip_a_bit(const SnapshotPages& pages) {
  for (const auto& piece : pages.pieces()) {
    if (piece.data.nbytes() == 0) continue;
    *static_cast<unsigned char*>(piece.data.data_ptr()) ^= 1;
    return;
  }
}

}  // namespace

Backup::Backup(BackupOptions options, PageHolder* pages, FaultPlan* faults,
               std::unique_ptr<Disk> disk)
    : options_(std::move(options)),
      pages_(pages),
      faults_(faults),
      disk_(std::move(disk)) {
  if (faults_) disk_ = with_faults(std::move(disk_), *faults_, rank_);
  snapshots_ = std::make_unique<Snapshots>(pages_, num_slots());
}

int Backup::num_slots() const {
  const bool takes = pages_ && options_.snapshot_every > 0;
  return (takes ? 3 : 0) + (writes_behind() ? 1 : 0);
}

Backup::~Backup() { end(); }

// A write that is cut off ends at its next exchange of texts; nobody waits for it here.
void Backup::end() {
  if (group_) group_->abort("the world has ended");
  group_.reset();
  world_ = {};
}

void Backup::begin(const BackupWorld& world) {
  end();
  world_ = world;
  const Communicator& comm = *world_.comm;
  rank_ = comm.rank();
  if (num_slots() > 0) {
    snapshots_->begin(
        {.generation = comm.generation(), .world = comm.size(), .rank = comm.rank()},
        world_.runner->state(Holding::kOwned));
    check_memory();
    snapshots_->warm_up();
  }
  if (writes_behind()) group_ = world_.comm->split(0);
}

// A later world has what it needs: what the lost rank had is this one's now.
void Backup::check_memory() {
  if (world_.comm->generation() > 0) return;
  Tensor sums = at::tensor({snapshots_->wanted_bytes(), snapshots_->held_bytes()});
  world_.comm->all_reduce(sums, ReduceOp::kSum).wait();
  Tensor free = at::full({1}, available_memory(), at::kLong);
  world_.comm->all_reduce(free, ReduceOp::kMin).wait();
  const int64_t wanted = sums[0].item<int64_t>(), held = sums[1].item<int64_t>();
  const int64_t limit =
      options_.memory > 0 ? options_.memory : free.item<int64_t>() + held;
  if (wanted <= limit) return;
  throw ConfigError(text("[train.snapshot] snapshots of all ranks need ",
                         format_bytes(static_cast<double>(wanted)), "; they may have ",
                         format_bytes(static_cast<double>(limit)),
                         " (checkpoint.memory); snapshot.every_steps=0 or "
                         "checkpoint.async=false need less"));
}

RunState Backup::complete(RunState run) const {
  const SamplerOptions& samples = world_.sampler->options();
  const Position next = world_.sampler->position(run.step);
  run.epoch = next.epoch;
  run.sample = next.step * samples.batch;
  run.seed = samples.seed;
  run.layout = world_.layout;
  run.world = world_.comm->size();
  for (const auto& [name, said] : options_.model) run.state[name] = said;
  run.state[kRunnerState] = world_.runner->small_state();
  run.state[kBatchState] = std::to_string(samples.batch);
  run.state[kSlicesState] = std::to_string(samples.slices);
  run.state[kSamplesState] = std::to_string(samples.size);
  run.state[kDataState] = world_.data;
  return run;
}

void Backup::after_step(const RunState& given) {
  if (const auto outcome = saving_.take_outcome()) report(*outcome);
  const bool saves_now = options_.is_due(given.step);
  const bool takes =
      pages_ && options_.snapshot_every > 0 &&
      (given.step % options_.snapshot_every == 0 || given.step == pinned_);
  if (!saves_now && !takes) return;
  require_sound(*world_.runner);
  const RunState run = complete(given);
  const bool writes = saves_now && may_write(run.step);
  if (writes && !options_.async) save_now(run);
  const bool behind = writes && options_.async;
  if (!takes && !behind) return;
  reach("backup.snapshot");
  auto pages = snapshots_->take(run, world_.runner->state(Holding::kOwned));
  if (pages && reach("backup.snapshot_data")) flip_a_bit(*pages);
  if (behind && pages) write_behind(run, std::move(pages));
}

void Backup::pin(int64_t step) {
  pinned_ = step;
  snapshots_->pin(step);
}

void Backup::forget_after(int64_t step) {
  wait_for_writer();  // it reads one
  snapshots_->forget_after(step);
}

void Backup::start(const RunState& run) {
  if (pages_ && options_.snapshot_every > 0)
    snapshots_->take(complete(run), world_.runner->state(Holding::kOwned));
}

int64_t Backup::greatest(int64_t mine) {
  Tensor all = at::full({1}, mine, at::kLong);
  world_.comm->all_reduce(all, ReduceOp::kMax).wait();
  return all.item<int64_t>();
}

// All ranks alike, or some would wait for the others in a save of their own.
bool Backup::may_write(int64_t step) {
  const bool there = world_.comm->rank() == 0 && saved_step_ == step;
  const int64_t most = greatest(there ? kThere : saving_.busy() ? kBusy : kFree);
  if (most == kBusy && !said_busy_) {
    said_busy_ = true;
    note(text("step ", step, " is not saved: the checkpoint before it is still being ",
              "written; a larger checkpoint.every_steps or a faster disk helps"));
  }
  return most == kFree;
}

void Backup::write_behind(const RunState& run, std::shared_ptr<SnapshotPages> pages) {
  saving_.start(run.step, [this, run, pages, group = group_] {
    CheckpointWriter writer(options_.dir,
                            {.retention = options_.retention,
                             .damage = [pages] { return pages->damage(); }},
                            *disk_);
    return writer.save(run, pages->pieces(), text_exchange(*group));
  });
}

// Throws CommError if a peer is lost; a disk that refuses is only reported.
void Backup::save_now(const RunState& run) {
  SaveOutcome outcome{.step = run.step};
  try {
    CheckpointWriter writer(options_.dir, {.retention = options_.retention}, *disk_);
    reach("backup.save");
    const SaveReport report =
        writer.save(run, world_.runner->state(Holding::kOwned),
                    text_exchange(*world_.comm, patience("its checkpoint")));
    outcome.path = report.path;
    outcome.remark = report.remark;
  } catch (const CheckpointError& error) {
    outcome.failure = error.what();
  }
  report(outcome);
}

// A slow disk is named, and is no fault.
PatienceOptions Backup::patience(const std::string& what) {
  auto watch = [this, what, next = kFirstWord](const std::vector<int>& late,
                                               auto waited) mutable {
    if (waited < next) return;
    next = 4 * waited;
    note(text("rank ", join_numbers(late), " has been writing ", what, " for ",
              std::lround(waited.count()), " s; the others wait"));
  };
  return {.watch = std::move(watch), .left_behind = &left_behind_};
}

// All ranks wait together, so that none is taken for dead while its disk is slow.
void Backup::wait_for_writer() {
  if (!writes_behind()) return;
  const auto wait = [this] {
    saving_.wait();
    return std::string();
  };
  text_exchange(*world_.comm, patience("a checkpoint")).work(wait);
}

bool Backup::reach(std::string_view point) {
  return faults_ && faults_->reach(point, rank_) == FaultPlan::Ask::kFlip;
}

bool Backup::finish(const RunState& given) {
  wait_for_writer();
  if (const auto outcome = saving_.take_outcome()) report(*outcome);
  if (!saves()) return false;
  const RunState run = complete(given);
  if (may_write(run.step)) save_now(run);
  return greatest(saved_step_ == run.step ? 1 : 0) == 1;
}

void Backup::report(const SaveOutcome& outcome) {
  if (!outcome.path.empty()) saved_step_ = outcome.step;
  if (!world_.reporter) return;
  if (!outcome.path.empty())
    world_.reporter->checkpoint({.path = outcome.path, .step = outcome.step});
  if (!outcome.failure.empty())
    world_.reporter->checkpoint_failed(
        {.step = outcome.step, .cause = outcome.failure});
  if (!outcome.remark.empty()) note(outcome.remark);
}

void Backup::note(const std::string& line) {
  if (world_.reporter) world_.reporter->note(line);
}

}  // namespace cohort
