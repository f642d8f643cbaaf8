// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/history_check.h"

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <map>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/hash.h"
#include "cohort/data/sampler.h"

namespace cohort {
namespace {

// At most one of each kind.
class KnownHashes {
 public:
  std::optional<uint64_t>& of(HashKind kind) { return hashes_[static_cast<int>(kind)]; }
  const std::optional<uint64_t>& of(HashKind kind) const {
    return hashes_[static_cast<int>(kind)];
  }
  bool any() const { return hashes_[0] || hashes_[1]; }
  // Both have some, and none that could be equal.
  bool apart_from(const KnownHashes& other) const {
    const auto both = [&](int i) { return hashes_[i] && other.hashes_[i]; };
    return any() && other.any() && !both(0) && !both(1);
  }

 private:
  std::array<std::optional<uint64_t>, 2> hashes_;
};

// What was seen of one step: whenever it is made again, it must be equal to this.
struct Seen {
  int64_t record = 0;
  std::optional<double> loss;
  KnownHashes hash;         // hashes of what run.hash_of says
  KnownHashes weights;      // at an end
  bool says_drawn = false;  // the record has what the ranks drew
  bool drawn = false;       // and it is right
};

std::string shown(uint64_t hash) { return hex16(hash); }
std::string shown(double loss) {
  return text(loss, " (bits ", hex16(std::bit_cast<uint64_t>(loss)), ")");
}
std::string shown(const SampleSum& drawn) {
  return text(drawn.count, " samples with the sum ", hex16(drawn.sum));
}

bool same(uint64_t a, uint64_t b) { return a == b; }
bool same(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

// A place in the permuted order of an epoch.
struct RecordPlace {
  int64_t epoch = 0;
  int64_t k = 0;
  auto operator<=>(const RecordPlace&) const = default;
  std::string text() const { return cohort::text("epoch ", epoch, " place ", k); }
};

class HistoryCheck {
 public:
  explicit HistoryCheck(const std::string& path) : path_(path) {
    const std::string bytes = read_file(path);
    HistoryReader reader(bytes, path);
    while (const auto item = reader.next()) {
      ++report.records;
      record_ = item->index;
      if (!item->damage.empty())
        breach("", text("at byte ", item->offset, ": ", item->damage));
      else
        std::visit([&](const auto& r) { take(r); }, item->record);
    }
    report.torn_bytes = reader.torn_bytes();
    if (!has_run_ && report.breaches.empty())
      throw DataError(text("[elastic.history] ", path, ": has no whole record"));
    report.steps = at_;
    count_epochs();
    if (seen_.empty())
      report.nothing = "no step is committed";
    else if (!world_)
      report.nothing = "no world is noted";
  }

  void require_related(const HistoryCheck& other) const;
  void compare_with(const HistoryCheck& other);

  HistoryReport report;

 private:
  void take(const HistoryRun& run);
  void take(const HistoryWorld& world);
  void take(const HistoryStep& step);
  void take(const HistoryRollback& rollback);
  void take(const HistoryEnd& end);
  void take_samples(const HistoryStep& step);
  void take_order(const HistoryStep& step);
  bool take_drawn(const HistoryStep& step);
  bool take_hash(const char* what, int64_t step, KnownHashes& before,
                 const std::optional<RecordedHash>& now);
  template <typename T>
  void take_value(const char* what, int64_t step, std::optional<T>& before,
                  const std::optional<T>& now);
  void count_epochs();

  RecordPlace place_of(int64_t committed) const {
    return {committed / run_.steps_per_epoch,
            committed % run_.steps_per_epoch * run_.batch};
  }
  // Where the next sample is, after the last of an epoch: in the next epoch.
  RecordPlace expected_place() const {
    return next_.k < run_.samples ? next_ : RecordPlace{next_.epoch + 1, 0};
  }
  // A damaged file has steps in any order: never above what it stands at.
  void stand_at(int64_t step) {
    at_ = step;
    lowest_ = std::min(lowest_, at_);
  }
  void breach(const std::string& step, const std::string& what) {
    report.breaches.push_back(text("record ", record_, step, ": ", what));
  }
  void breach_at(int64_t step, const std::string& what) {
    breach(text(", step ", step), what);
  }

  std::string path_;
  HistoryRun run_;
  bool has_run_ = false;
  std::optional<Sampler> sampler_;
  std::optional<HistoryWorld> world_;
  std::map<int64_t, int64_t> commands_;  // the first record of each, by its start
  bool ended_ = false;
  int64_t record_ = 0;
  int64_t at_ = 0;      // steps committed, net of rollbacks
  int64_t lowest_ = 0;  // that it ever was
  RecordPlace next_;
  int64_t proved_from_ = 0;  // the first epoch whose beginning the file has
  std::map<int64_t, Seen> seen_;
};

void HistoryCheck::take(const HistoryRun& run) {
  if (has_run_) return breach("", "a second run; expected one, at the beginning");
  const bool legal = run.samples > 0 && run.batch > 0 && run.base >= 0 &&
                     run.slices > 0 &&
                     run.steps_per_epoch == (run.samples - 1) / run.batch + 1;
  if (!legal)
    throw DataError(text("[elastic.history] ", path_, ": ", run.samples,
                         " samples in batches of ", run.batch, " with ",
                         run.steps_per_epoch, " steps per epoch and ", run.slices,
                         " slices: is no run"));
  if (record_ != 0) breach("", "the run; expected as the first record");
  has_run_ = true;
  run_ = report.run = run;
  sampler_.emplace(SamplerOptions{
      .size = run.samples, .batch = run.batch, .slices = run.slices, .seed = run.seed});
  at_ = lowest_ = run.base;
  next_ = place_of(at_);
  proved_from_ = next_.epoch + (next_.k > 0 ? 1 : 0);
}

void HistoryCheck::take(const HistoryWorld& world) {
  const bool same_command = world_ && world_->started_us == world.started_us;
  if (!has_run_) breach("", "a world; expected the run before it");
  if (world.ranks < 1) breach("", text(world.ranks, " ranks; expected 1 or more"));
  if (same_command && world.generation <= world_->generation)
    breach("", text("generation ", world.generation, "; expected one above ",
                    world_->generation));
  // The rank that wrote the end may be lost right behind it: another one ends the run
  // again.
  if (same_command && ended_ && world.committed > at_)
    breach("", "a world of a command that has ended; expected a later command");
  const auto [command, is_new] = commands_.emplace(world.started_us, record_);
  if (!same_command && !is_new)
    breach("", text("a world of the command of record ", command->second,
                    ", which another has followed; expected a later command"));
  if (world.committed != at_)
    breach("", text("generation ", world.generation, " begins at step ",
                    world.committed, "; expected ", at_));
  ++report.worlds;
  report.commands += same_command ? 0 : 1;
  world_ = world;
  ended_ = false;
}

void HistoryCheck::take(const HistoryStep& step) {
  if (!has_run_)
    return breach_at(step.step, "is committed; expected the run before it");
  take_order(step);
  take_samples(step);
  Seen& seen = seen_[step.step];
  report.steps_again += run_.exact && seen.record > 0 ? 1 : 0;
  bool compared = run_.exact && seen.loss && step.loss;
  if (run_.exact) take_value("loss", step.step, seen.loss, step.loss);
  auto& hash = run_.hash_of == "weights" ? seen.weights : seen.hash;
  compared |= take_hash("hash", step.step, hash, step.hash);
  report.steps_compared += compared ? 1 : 0;
  seen.says_drawn = step.drawn.has_value();
  seen.drawn = take_drawn(step);
  seen.record = record_;
  stand_at(step.step);
}

// Which samples a step must draw follows from its number; which it drew, from the
// ranks.
bool HistoryCheck::take_drawn(const HistoryStep& step) {
  if (!step.drawn || step.step < 1) return false;
  const SampleSum expected = sampler_->batch_sum(sampler_->position(step.step - 1));
  if (*step.drawn == expected) return true;
  breach_at(step.step,
            text("the ranks drew ", shown(*step.drawn), "; expected ", shown(expected),
                 ": a sample is missing, doubled or another"));
  return false;
}

void HistoryCheck::take_order(const HistoryStep& step) {
  if (step.step <= at_)
    breach_at(step.step, text("is committed again; expected step ", at_ + 1));
  if (step.step > at_ + 1)
    breach_at(step.step, text("is committed; expected step ", at_ + 1, ", missing"));
  // The record of the world may be lost with the machine, and the steps noted later.
  if (!world_ && !step.afterwards)
    breach_at(step.step, "is committed in no world; expected a world before it");
  else if (world_ && step.generation != world_->generation)
    breach_at(step.step, text("is of generation ", step.generation, "; expected ",
                              world_->generation));
  if (ended_ && !step.afterwards)
    breach_at(step.step, "is committed after the end; expected a world before it");
}

void HistoryCheck::take_samples(const HistoryStep& step) {
  const RecordPlace here{step.epoch, step.first};
  const RecordPlace expected = expected_place();
  if (here < expected)
    breach_at(step.step, text("uses samples from ", here.text(),
                              " on a second time; expected ", expected.text()));
  else if (here > expected)
    breach_at(step.step, text("uses samples from ", here.text(), " on; expected ",
                              expected.text(), ", left out"));
  const int64_t count = std::clamp<int64_t>(run_.samples - step.first, 0, run_.batch);
  if (step.count != count || count == 0)
    breach_at(step.step, text("uses ", step.count, " samples from ", here.text(),
                              " on; expected ", count));
  next_ = {here.epoch, here.k + step.count};
}

void HistoryCheck::take(const HistoryRollback& rollback) {
  if (!has_run_) return breach("", "a rollback; expected the run before it");
  if (rollback.from != at_)
    breach("", text("a rollback from step ", rollback.from, "; expected from ", at_));
  if (rollback.to < 0 || rollback.to >= rollback.from)
    return breach("", text("a rollback from step ", rollback.from, " to ", rollback.to,
                           "; expected to one before it"));
  ++report.rollbacks;
  report.steps_undone += rollback.from - rollback.to;
  if (rollback.damaged) seen_.erase(seen_.upper_bound(rollback.to), seen_.end());
  stand_at(rollback.to);
  next_ = place_of(at_);
}

void HistoryCheck::take(const HistoryEnd& end) {
  if (!has_run_ || !world_) return breach("", "an end; expected a world before it");
  if (end.step != at_)
    breach("", text("the end at step ", end.step, "; expected ", at_));
  if (ended_) breach("", "a second end; expected a world before it");
  ended_ = true;
  Seen& seen = seen_[end.step];
  if (take_hash("weights hash", end.step, seen.weights, end.weights_hash))
    ++report.steps_compared;
  seen.record = record_;
}

// Whether there was one that it had to be equal to.
bool HistoryCheck::take_hash(const char* what, int64_t step, KnownHashes& before,
                             const std::optional<RecordedHash>& now) {
  if (!now) return false;
  auto& same_kind = before.of(now->kind);
  const bool compared = run_.exact && same_kind;
  if (run_.exact && before.any() && !same_kind) ++report.hashes_apart;
  take_value(what, step, same_kind, std::optional(now->value));
  return compared;
}

// A run that is not exact may make a step again with other bits: the last count.
template <typename T>
void HistoryCheck::take_value(const char* what, int64_t step, std::optional<T>& before,
                              const std::optional<T>& now) {
  if (!now) return;
  if (run_.exact && before && !same(*before, *now))
    breach_at(step, text(what, " ", shown(*now), "; expected ", shown(*before),
                         ", as in record ", seen_[step].record));
  before = now;
}

void HistoryCheck::count_epochs() {
  const int64_t whole = next_.k >= run_.samples ? next_.epoch + 1 : next_.epoch;
  if (!has_run_) return;
  std::map<int64_t, int64_t> drawn;  // steps, by epoch
  for (auto it = seen_.upper_bound(lowest_); it != seen_.upper_bound(at_); ++it) {
    if (it->second.drawn) ++drawn[(it->first - 1) / run_.steps_per_epoch];
    report.steps_drawn += it->second.drawn ? 1 : 0;
    report.steps_not_drawn += it->second.says_drawn ? 0 : 1;
  }
  if (!report.breaches.empty()) return;
  report.epochs = std::max<int64_t>(0, whole - proved_from_);
  report.epochs_drawn = std::ranges::count_if(drawn, [&](const auto& epoch) {
    return epoch.first >= proved_from_ && epoch.second == run_.steps_per_epoch;
  });
}

void HistoryCheck::require_related(const HistoryCheck& other) const {
  std::error_code ignored;
  if (std::filesystem::equivalent(path_, other.path_, ignored))
    throw ConfigError(text("[elastic.history] ", other.path_, " is the file ", path_,
                           "; legal: the history of another run to compare it with"));
  const std::string ours = facts_of(run_), theirs = facts_of(other.run_);
  if (has_run_ && other.has_run_ && ours != theirs)
    throw ConfigError(text("[elastic.history] ", other.path_,
                           " cannot be compared with ", path_, ": ", theirs,
                           "; legal: a run with ", ours));
}

void HistoryCheck::compare_with(const HistoryCheck& other) {
  const auto value = [&](const char* what, int64_t step, const auto& a, const auto& b,
                         int64_t record) {
    if (!a || !b) return;
    ++report.values_compared;
    if (!same(*a, *b))
      report.breaches.push_back(text(other.path_, ": record ", record, ", step ", step,
                                     ": ", what, " ", shown(*b), "; expected ",
                                     shown(*a), ", as in ", path_));
  };
  const auto hashes = [&](const char* what, int64_t step, const KnownHashes& a,
                          const KnownHashes& b, int64_t record) {
    for (const auto kind : {HashKind::kStream, HashKind::kPieces})
      value(what, step, a.of(kind), b.of(kind), record);
    if (a.apart_from(b)) ++report.hashes_apart;
  };
  for (const auto& [step, theirs] : other.seen_) {
    const auto ours = seen_.find(step);
    if (ours == seen_.end()) continue;
    ++report.steps_shared;
    if (run_.exact && other.run_.exact)
      value("loss", step, ours->second.loss, theirs.loss, theirs.record);
    hashes("weights hash", step, ours->second.weights, theirs.weights, theirs.record);
    if (run_.hash_of == other.run_.hash_of)
      hashes("hash", step, ours->second.hash, theirs.hash, theirs.record);
  }
  if (report.values_compared > 0 || !report.nothing.empty()) return;
  report.nothing = report.steps_shared == 0
                       ? text("no step is in both")
                       : text(report.steps_shared, " steps are in both, none with a ",
                              run_.exact ? "loss or hash" : "hash", " that both have");
  if (report.hashes_apart > 0)
    report.nothing += text("; the hashes of ", report.hashes_apart,
                           " are of two kinds (docs/formats/weights_hash.md)");
}

}  // namespace

HistoryReport verify_history(const std::string& path) {
  return HistoryCheck(path).report;
}

HistoryReport verify_history(const std::string& path, const std::string& other) {
  HistoryCheck first(path);
  const HistoryCheck second(other);
  first.require_related(second);
  for (const auto& breach : second.report.breaches)
    first.report.breaches.push_back(text(other, ": ", breach));
  first.compare_with(second);
  return std::move(first.report);
}

}  // namespace cohort
