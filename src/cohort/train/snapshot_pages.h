// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/checkpoint/manifest.h"

namespace cohort {

// Whose part of which state a snapshot is. Parts belong together if all but the rank is
// equal: a step that is computed again in another generation may differ in its bits.
struct SnapshotTitle {
  int64_t step = 0;
  int64_t generation = 0;
  int world = 1;
  int rank = 0;

  bool same_state(const SnapshotTitle& other) const {
    return step == other.step && generation == other.generation && world == other.world;
  }
};

// Where pieces lie in a snapshot; the same as long as a rank owns the same pieces.
struct SnapshotPlan {
  std::string tables;  // names and places, as format_part() writes them
  std::vector<int64_t> offsets;
  int64_t data_bytes = 0;

  // The bytes of the pages that hold it.
  int64_t total_bytes() const;
};
SnapshotPlan plan_snapshot(std::span<const StatePiece> pieces);

// A rank's part of one state in pages of their own, which any process that has the
// descriptor can map; they live until the last of them has let go.
//
// A mark, written last, says that the part is complete: a rank that is killed while it
// copies leaves none. The mark is a hash of all that is not data, and of the hash of
// the data, which is looked at when they are used: damage().
//
// Failure: CheckpointError when the system gives no memory. Thread safety: one writes;
// complete parts may be read by anyone.
class SnapshotPages : public std::enable_shared_from_this<SnapshotPages> {
 public:
  static std::shared_ptr<SnapshotPages> create(int64_t bytes);
  // Takes over the descriptor. Null if it is no such memory.
  static std::shared_ptr<SnapshotPages> map(int fd);
  ~SnapshotPages();
  SnapshotPages(const SnapshotPages&) = delete;
  SnapshotPages& operator=(const SnapshotPages&) = delete;

  int fd() const { return fd_; }
  int64_t bytes() const { return bytes_; }
  // Makes pages [begin, begin + count bytes) real, so that the first copy is as fast as
  // the others. May run beside write().
  void warm(int64_t begin, int64_t count);

  // False, and nothing has changed, if it does not fit.
  [[nodiscard]] bool write(const SnapshotTitle& title, const RunState& run,
                           const SnapshotPlan& plan,
                           std::span<const StatePiece> pieces);
  // Lets go what is in it.
  void clear();

  // These are for a complete part; title() is empty for any other. CheckpointError if a
  // piece lies outside the pages.
  std::optional<SnapshotTitle> title() const;
  RunState run() const;
  // One line if the data of a complete part is not what was written: memory may change
  // by itself. Empty: it is. Reads all of it.
  std::string damage() const;
  // Views, which keep the pages alive.
  std::vector<StatePiece> pieces() const;

 private:
  struct Header;
  SnapshotPages(int fd, void* memory, int64_t bytes);
  Header& header() const;
  std::string_view run_text() const;
  std::string_view tables_text() const;
  uint64_t mark() const;
  int64_t place_of(const TensorRecord& record) const;

  int fd_;
  char* memory_;
  int64_t bytes_;
};

}  // namespace cohort
