// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/core/patient_file.h"
#include "cohort/data/sampler.h"
#include "cohort/elastic/history_record.h"

namespace cohort {

// What is known of a step; of one that a lost rank committed, it may be nothing.
struct KnownStep {
  int64_t step = 0;  // counted from 1; 0: none
  std::optional<double> loss;
  std::optional<SampleSum> drawn;
  std::optional<RecordedHash> hash = {};
};

// Writes the history of a run: a file that grows by one record for each committed step,
// world or rollback, through all generations and commands that go on with the run.
//
// Rank 0 of each world makes one, calls begin() once, then step() after each commit.
// Records are whole: what a killed writer left half-written is cut off by the next one.
// A step that a lost rank 0 committed without noting it is noted by the next: which
// samples it had to use is a function of its number, which it did use a survivor knows.
//
// Failure: DataError if the file cannot be written, or is damaged other than by such a
// tear; ConfigError if it is the history of another run. After a failed write the file
// is as before the call, and a later call makes up for it. With a backlog a full disk
// is no failure: records wait for room. Steps beyond its limit are noted without what
// is known of them.
//
// Thread safety: none. A record costs one write() of about 64 bytes; it is on disk when
// the system gets to it, and at end().
class History {
 public:
  // Opens or creates. `run.base` is set by the first begin(); `run.steps_per_epoch` is
  // computed.
  History(const std::string& path, HistoryRun run, Backlog* backlog = nullptr);
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  // Steps that the file has, after rollbacks.
  int64_t committed() const { return committed_; }

  // A world begins with `world.committed` steps. Missing ones are filled up, `last`
  // with what is known of it; if the file has more, they are rolled back, and `why`
  // says why, `damaged` as below.
  void begin(const HistoryWorld& world, const std::string& why,
             const KnownStep& last = {}, bool damaged = false);

  // The commit of a step, counted from 1, in order.
  void step(const KnownStep& step);
  // Notes steps up to and with `committed` that are missing; `last` as above.
  void fill_up_to(int64_t committed, const KnownStep& last = {});
  // Undoes the steps after `to`.
  // `damaged`: what the undone steps left was wrong.
  void rollback(int64_t to, const std::string& why, bool damaged = false);
  // The command ends by itself; synced.
  void end(int signal, std::optional<RecordedHash> weights_hash);

 private:
  void open(Backlog* backlog);
  void take_up(std::string_view bytes);
  void take_in(const HistoryRecord& record);
  void append(const HistoryRecord& record);
  HistoryStep step_record(int64_t step, const KnownStep& known) const;

  std::string path_;
  HistoryRun run_;
  Sampler sampler_;
  PatientFile file_;
  int64_t bytes_ = 0;  // size of whole records, also those that wait
  uint64_t last_hash_ = 0;
  int64_t committed_ = 0;
  int32_t generation_ = 0;
};

}  // namespace cohort
