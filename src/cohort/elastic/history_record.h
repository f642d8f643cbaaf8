// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "cohort/data/sample_sum.h"

namespace cohort {

// The records of a run's history; docs/formats/history.md has their bytes. Steps are
// counted from 1, so that step n is the n-th that was committed. A sample's place is
// (epoch, k) in the permuted order, both from 0 (docs/formats/sample_order.md).

// How a hash of weights was made (docs/formats/weights_hash.md). Hashes of two kinds
// say nothing about each other.
enum class HashKind {
  kStream,  // XXH3-64 over all bytes: older programs noted it
  kPieces,  // a sum over elements, which ranks add up
};
// "stream" or "pieces".
std::string_view hash_kind_name(HashKind kind);

struct RecordedHash {
  uint64_t value = 0;
  HashKind kind = HashKind::kPieces;

  bool operator==(const RecordedHash&) const = default;
};

// The first record, and the only one of its kind: what does not change in a run.
struct HistoryRun {
  uint64_t seed = 0;
  int64_t samples = 0;  // in the data set
  int64_t batch = 0;    // global
  int64_t steps_per_epoch = 0;
  int64_t base = 0;  // steps committed before this history began
  int32_t slices = 0;
  bool exact = false;               // equal steps have equal bits
  std::string hash_of = "weights";  // what the hash of a step is of

  bool operator==(const HistoryRun&) const = default;
};

// What two runs must have in common to be compared, in words.
std::string facts_of(const HistoryRun& run);

// A world begins. Generations count up within a command. When a command was started
// tells it from others; as a time it is only shown, for clocks are set.
struct HistoryWorld {
  int64_t started_us = 0;  // the command: microseconds since 1970
  int32_t generation = 0;
  int32_t ranks = 0;
  int64_t committed = 0;  // steps so far
  std::string layout;

  bool operator==(const HistoryWorld&) const = default;
};

// A step was committed.
struct HistoryStep {
  int64_t step = 0;
  int32_t generation = 0;
  int32_t epoch = 0;
  int64_t first = 0;  // its samples are places [first, first + count)
  int32_t count = 0;
  bool afterwards =
      false;  // noted by a later world: the rank that should have was lost
  std::optional<double> loss;
  std::optional<RecordedHash> hash;
  // What the ranks together computed with, as they say: not derived from the step.
  std::optional<SampleSum> drawn = {};

  bool operator==(const HistoryStep&) const = default;
};

// Steps to + 1 ... from are undone.
struct HistoryRollback {
  int64_t from = 0;
  int64_t to = 0;
  std::string why;
  bool damaged = false;  // what they left was wrong: made again, they may be others

  bool operator==(const HistoryRollback&) const = default;
};

// A command ended by itself: done, or stopped by a signal.
struct HistoryEnd {
  int64_t step = 0;
  int32_t signal = 0;  // 0: done
  std::optional<RecordedHash> weights_hash;

  bool operator==(const HistoryEnd&) const = default;
};

using HistoryRecord =
    std::variant<HistoryRun, HistoryWorld, HistoryStep, HistoryRollback, HistoryEnd>;

inline constexpr std::string_view kHistoryMagic = "COHORTH1";

// The record's bytes. `previous` is the hash at the end of the record before it (of the
// first record: 0), so that none can be left out unseen.
std::string history_bytes(const HistoryRecord& record, uint64_t previous);

// Reads the records of a history one by one; the bytes must outlive it.
class HistoryReader {
 public:
  // DataError if they are not those of a history; `name` is for messages.
  HistoryReader(std::string_view bytes, const std::string& name);

  struct Item {
    int64_t index = 0;  // number of the record in its file, from 0
    int64_t offset = 0;
    HistoryRecord record;
    std::string damage;  // if not empty, there is no record
  };
  // Empty at the end. After damage that hides where the next record begins, too.
  std::optional<Item> next();

  // After the last whole record, and the hash that ends it.
  int64_t end() const { return end_; }
  uint64_t last_hash() const { return last_hash_; }
  // Bytes of a record that its writer could not finish; known at the end.
  int64_t torn_bytes() const { return torn_bytes_; }

 private:
  std::optional<Item> damaged(const std::string& what);
  bool ends_torn(std::string_view rest) const;

  std::string_view bytes_;
  size_t at_ = 0;
  int64_t index_ = 0;
  int64_t end_ = 0;
  uint64_t last_hash_ = 0;
  int64_t torn_bytes_ = 0;
};

}  // namespace cohort
