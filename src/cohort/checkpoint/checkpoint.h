// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/checkpoint/manifest.h"
#include "cohort/tensor.h"

namespace cohort {

// A saved state (docs/formats/checkpoint.md), for reading. Whichever ranks wrote it,
// any rank of any layout asks for what it needs, as the dtype it needs:
//   Checkpoint saved("runs/a/step-00001200");
//   saved.read("fc.weight", shard.begin, my_master);      // a flat range
//   saved.read(my_piece);                                 // a range of any box
//   Tensor weight = saved.read("fc.weight");              // all of it, in its shape
//
// Only the chunks that hold the asked elements are read, and each is compared with its
// hash. Failure: CheckpointError that names the file, the tensor and the elements; what
// was to be filled is then undefined. Thread safety: none; open it twice instead.
class Checkpoint {
 public:
  // Reads the manifest, and checks that its files are there and as long as it says.
  explicit Checkpoint(const std::string& folder);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  // Null if there is none.
  const TensorRecord* find(const std::string& name) const;
  // CheckpointError with the nearest name if there is none.
  const TensorRecord& tensor(const std::string& name) const;

  // Fills the data of a piece, contiguous and on the CPU, with the elements its spec
  // names. Its dtype may be another than the stored one. Another order than the stored
  // one costs a read of the whole tensor.
  void read(const StatePiece& wanted);
  // Elements [begin, begin + out.numel()) of the whole, counted in the order of `order`
  // (empty: row-major) as memory_order() gives it.
  void read(const std::string& name, int64_t begin, Tensor& out,
            const std::vector<int64_t>& order = {});
  // All of it: row-major, in its shape; in its own dtype if none is given.
  Tensor read(const std::string& name, std::optional<at::ScalarType> dtype = {});

  // Reads one chunk; false if it is damaged or cannot be read.
  [[nodiscard]] bool intact(const TensorRecord& record, const SavedBox& box,
                            const SavedChunk& chunk);
  // Reads everything and names what is wrong, one line per fault.
  std::vector<std::string> verify();

 private:
  struct OpenFile;
  OpenFile& open(int file);
  void read_stored(const TensorRecord& record, const StatePiece& wanted);
  void read_part(const TensorRecord& record, const SavedBox& saved,
                 const SavedChunk& chunk, const StatePiece& wanted);
  void read_chunk(const TensorRecord& record, const SavedBox& saved,
                  const SavedChunk& chunk, char* out);

  std::string path_;
  Manifest manifest_;
  std::vector<std::unique_ptr<OpenFile>> files_;
};

// ---- Folders of checkpoints -------------------------------------------------

// "step-00001234".
std::string step_folder(int64_t step);
std::optional<int64_t> step_of_folder(const std::string& name);
// "model-00001-of-00003.safetensors" for index 0 of 3, as PyTorch names shards.
std::string shard_name(int64_t index, int64_t count);

struct CheckpointInfo {
  std::string path;
  int64_t step = 0;
  std::string trouble;  // why it cannot be used; then the manifest is empty
  Manifest manifest;
};

// What lies in a folder, by step. Data is not read. A folder that is not there has
// none.
std::vector<CheckpointInfo> list_checkpoints(const std::string& root);

// The newest that can be used. `troubles`, if given: why newer ones cannot, the newest
// first.
std::optional<std::string> latest_checkpoint(
    const std::string& root, std::vector<std::string>* troubles = nullptr);

}  // namespace cohort
