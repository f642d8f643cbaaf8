// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/history.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/core/file.h"

namespace cohort {
namespace {

[[noreturn]] void fail_history(const char* what, const std::string& path, int code) {
  throw DataError(text("[elastic.history] cannot ", what, " ", path, ": ",
                       std::generic_category().message(code)));
}

}  // namespace

History::History(const std::string& path, HistoryRun run, Backlog* backlog)
    : path_(path),
      run_(std::move(run)),
      sampler_({.size = run_.samples,
                .batch = run_.batch,
                .slices = run_.slices,
                .seed = run_.seed}) {
  run_.steps_per_epoch = sampler_.steps_per_epoch();
  open(backlog);
}

void History::open(Backlog* backlog) {
  UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd) fail_history("open", path_, errno);
  file_ = PatientFile(std::move(fd), path_, backlog);
  const std::string bytes = read_file(path_);
  if (!bytes.empty()) take_up(bytes);
  // Cuts off what a killed writer could not finish.
  if (::ftruncate(file_.fd(), bytes_) != 0) fail_history("cut", path_, errno);
}

// Where those before have left off.
void History::take_up(std::string_view bytes) {
  HistoryReader reader(bytes, path_);
  while (const auto item = reader.next()) {
    if (!item->damage.empty())
      throw DataError(text("[elastic.history] ", path_, ": record ", item->index,
                           " at byte ", item->offset, ": ", item->damage,
                           "; move the file away to begin a new one"));
    take_in(item->record);
    bytes_ = reader.end();
  }
  last_hash_ = reader.last_hash();
}

void History::take_in(const HistoryRecord& record) {
  if (const auto* run = std::get_if<HistoryRun>(&record)) {
    run_.base = run->base;
    if (*run != run_)
      throw ConfigError(text("[elastic.history] ", path_, " is of another run: ",
                             facts_of(*run), "; this one: ", facts_of(run_)));
    committed_ = run->base;
  } else if (const auto* world = std::get_if<HistoryWorld>(&record)) {
    generation_ = world->generation;
  } else if (const auto* step = std::get_if<HistoryStep>(&record)) {
    committed_ = step->step;
  } else if (const auto* rollback = std::get_if<HistoryRollback>(&record)) {
    committed_ = rollback->to;
  }
}

void History::append(const HistoryRecord& record) {
  const std::string prefix = bytes_ == 0 ? std::string(kHistoryMagic) : "";
  const std::string bytes = prefix + history_bytes(record, last_hash_);
  try {
    file_.append(bytes);
  } catch (const DataError&) {
    file_.forget();
    const bool longer = ::lseek(file_.fd(), 0, SEEK_END) > bytes_;
    if (longer && ::ftruncate(file_.fd(), bytes_) != 0)
      fail_history("cut", path_, errno);
    throw;
  }
  bytes_ += static_cast<int64_t>(bytes.size());
  std::memcpy(&last_hash_, bytes.data() + bytes.size() - sizeof last_hash_,
              sizeof last_hash_);
}

void History::begin(const HistoryWorld& world, const std::string& why,
                    const KnownStep& last, bool damaged) {
  if (bytes_ == 0) {
    run_.base = committed_ = world.committed;
    append(run_);
  }
  fill_up_to(world.committed, last);
  if (committed_ > world.committed) rollback(world.committed, why, damaged);
  append(world);
  generation_ = world.generation;
}

HistoryStep History::step_record(int64_t step, const KnownStep& known) const {
  const Position position = sampler_.position(step - 1);
  return {.step = step,
          .generation = generation_,
          .epoch = static_cast<int32_t>(position.epoch),
          .first = position.step * run_.batch,
          .count = static_cast<int32_t>(sampler_.batch_size(position)),
          .afterwards = false,
          .loss = known.loss,
          .hash = known.hash,
          .drawn = known.drawn};
}

void History::step(const KnownStep& step) {
  COHORT_CHECK(step.step > committed_, "step ", step.step, " is noted; ", committed_,
               " are");
  if (!file_.has_room()) return;  // the next one fills up
  fill_up_to(step.step - 1);
  append(step_record(step.step, step));
  committed_ = step.step;
}

void History::fill_up_to(int64_t committed, const KnownStep& last) {
  while (committed_ < committed) {
    const int64_t next = committed_ + 1;
    HistoryStep record = step_record(next, next == last.step ? last : KnownStep{});
    record.afterwards = true;
    append(record);
    ++committed_;
  }
}

void History::rollback(int64_t to, const std::string& why, bool damaged) {
  COHORT_CHECK(to < committed_, "back to step ", to, " from ", committed_);
  append(HistoryRollback{committed_, to, why, damaged});
  committed_ = to;
}

void History::end(int signal, std::optional<RecordedHash> weights_hash) {
  append(HistoryEnd{committed_, signal, weights_hash});
  if (::fdatasync(file_.fd()) != 0 && errno != EINVAL && !is_full_disk(errno))
    fail_history("sync", path_, errno);
}

}  // namespace cohort
