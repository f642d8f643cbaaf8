// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cohort/checkpoint/disk.h"
#include "cohort/checkpoint/manifest.h"
#include "cohort/checkpoint/save.h"

namespace cohort {

// What one rank writes and what it shares with an earlier checkpoint: private to
// save.cpp.

struct PlannedPiece {
  StateTensor tensor;
  Tensor data;                     // contiguous, on the CPU
  std::vector<SavedChunk> chunks;  // with a file >= 0: as the earlier one has it
};

// Wide elements first, then by name and begin: the order of a shard's data.
using SavePlan = std::vector<PlannedPiece>;

// Cuts pieces at multiples of the chunk size, hashes them, and finds those that `base`
// has and, being read again, still has. Null: there is no earlier one.
SavePlan make_plan(std::span<const StatePiece> pieces, int64_t chunk_bytes,
                   Checkpoint* base);

int64_t total_bytes(const SavePlan& plan);
// Bytes of the plan that each file of the base has: by the file's name.
std::map<std::string, int64_t> shared_bytes(const SavePlan& plan, const Manifest& base);
// Chunks in other files than these are to be written.
void share_only(SavePlan& plan, const Manifest& base,
                const std::set<std::string>& files);

// The name under which a file of an earlier checkpoint is linked.
std::string linked_name(const ShardFile& file);

// Writes what has to be written as the safetensors file `path`, if anything has to be.
// Returns the files and chunks of this rank: a part of the manifest.
Manifest write_shard(const SavePlan& plan, const Manifest& base,
                     const std::filesystem::path& path, Disk& disk);

// The parts of all ranks as one. CheckpointError if they contradict one another.
Manifest merge_parts(std::span<const Manifest> parts, const std::string& path);

}  // namespace cohort
