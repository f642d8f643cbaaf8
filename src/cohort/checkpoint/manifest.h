// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/step/state_piece.h"

namespace cohort {

// What a checkpoint holds and where, as docs/formats/checkpoint.md has it.

// Elements [begin, end) of a box of a tensor: where their bytes lie.
struct SavedChunk {
  int64_t begin = 0;
  int64_t end = 0;
  int file = 0;        // index into Manifest::files
  int64_t offset = 0;  // bytes from the start of that file
  uint64_t hash = 0;   // XXH3-64 of the bytes
};

struct SavedBox {
  TensorBox box;
  std::vector<SavedChunk> chunks;  // by `begin`, without gap or overlap
};

struct TensorRecord {
  StateTensor tensor;
  // All of one cut, without gap or overlap: most often one box, the whole tensor.
  std::vector<SavedBox> boxes;
};

// A tensor has at most so many boxes: more than any layout cuts one into.
inline constexpr size_t kMostBoxes = 1024;

struct ShardFile {
  std::string name;
  int64_t bytes = 0;
  uint64_t header_hash = 0;  // hash of the first 8 + N bytes
  uint64_t hash = 0;         // hash of the header's hash and its chunks', in order
};

// Where a run is.
struct RunState {
  int64_t step = 0;    // committed so far
  int64_t epoch = 0;   // the one that the next sample belongs to
  int64_t sample = 0;  // the next one of that epoch, in the permuted order
  uint64_t seed = 0;
  std::string layout;  // "dp=4,shard=3": for people; any other can load it
  int world = 1;
  std::map<std::string, double> metrics;
  std::map<std::string, std::string> state;  // by Stateful thing: its bytes or JSON
};

// The version of the format that is written; older ones are read for ever.
inline constexpr int kManifestVersion = 2;

struct Manifest {
  int version = kManifestVersion;  // that of the text it was read from
  RunState run = {};
  std::string program = {};  // version
  std::string build = {};    // its fingerprint
  int64_t chunk_bytes = 0;
  std::vector<ShardFile> files = {};
  std::vector<TensorRecord> tensors = {};  // by name
};

// The size of manifest.json. A chunk of 64 MB takes 60 bytes of it.
inline constexpr int64_t kMostManifestBytes = 256'000'000;

// The text of manifest.json, with its own hash at the end. CheckpointError if a name is
// not UTF-8. `path` is for messages, here and below.
std::string format_manifest(const Manifest& manifest, const std::string& path);

// Checks the hash, the form and check_manifest(). Throws CheckpointError.
Manifest parse_manifest(std::string_view bytes, const std::string& path);

// A part of a manifest, of which a whole one is put together: the chunks need not cover
// the tensors, and there is no hash. For ranks that report to one another. parse_part()
// checks check_forms().
std::string format_part(const Manifest& part, const std::string& path);
Manifest parse_part(std::string_view bytes, const std::string& path);

// Whether two know the same tensor: its kind, order, dtype and shape.
bool same_form(const StateTensor& a, const StateTensor& b);
// Tensors have shapes, orders and boxes that a tensor can have.
void check_forms(const Manifest& manifest, const std::string& path);
// Also, boxes cover their tensors and chunks their boxes; chunks lie inside their
// files, of which they are together no larger: no byte is named twice. Names are once
// and plain.
void check_manifest(const Manifest& manifest, const std::string& path);

// "weight_map" of a Hugging Face index: tensor -> file.
std::map<std::string, std::string> parse_weight_map(std::string_view bytes,
                                                    const std::string& path);
std::string format_weight_map(const std::map<std::string, std::string>& files,
                              int64_t total_bytes);

}  // namespace cohort
