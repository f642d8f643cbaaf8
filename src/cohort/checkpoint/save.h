// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cohort/checkpoint/disk.h"
#include "cohort/checkpoint/manifest.h"
#include "cohort/checkpoint/retention.h"
#include "cohort/comm/text_exchange.h"

namespace cohort {

// All of a tensor, row-major whatever its strides.
StatePiece whole_piece(std::string name, const Tensor& tensor, TensorKind kind);

struct SaveOptions {
  // Hashed, compared and shared as one: smaller ones find more that did not change and
  // make the manifest longer (about 60 bytes each).
  int64_t chunk_bytes = 1 << 20;
  Retention retention;
  // Asked on each rank when its part is written: one line says why what it read may not
  // have been what it was given; then nothing is shown. Empty: all is well.
  std::function<std::string()> damage = {};
};

struct SaveReport {
  std::string path;
  int64_t written_bytes = 0;         // size of the tensors that all ranks wrote
  int64_t linked_bytes = 0;          // that were there already
  std::vector<std::string> removed;  // older ones that retention let go; rank 0 knows
  std::string remark;                // why one of them could not be removed
};

// Writes checkpoints into the folder `root`, which all ranks see.
//
// All ranks call save() with the pieces each of them owns: every element of every
// tensor once. Each writes one safetensors file; chunks that the newest checkpoint has
// already are shared with it by a hard link. Rank 0 writes the manifest and renames the
// folder into its place: before that instant nothing is there, after it everything. A
// checkpoint of the same step is replaced in the same way.
//
// Failure: CheckpointError on every rank, with the first cause; what was there stays.
// A full disk is named with the bytes wanted and free. Whatever the exchange throws
// passes through; what this rank was writing then may go on for a while where nobody
// looks, and `disk` must live until that has ended (PatienceOptions::left_behind). One
// run at a time may save into a folder.
class CheckpointWriter {
 public:
  CheckpointWriter(std::string root, SaveOptions options, Disk& disk);

  SaveReport save(const RunState& run, std::span<const StatePiece> pieces,
                  const TextExchange& exchange = {});

 private:
  std::string root_;
  SaveOptions options_;
  Disk& disk_;
};

}  // namespace cohort
