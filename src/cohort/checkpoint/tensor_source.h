// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cohort/checkpoint/manifest.h"
#include "cohort/tensor.h"

namespace cohort {

// Tensors in a file or folder of any form we know, and their way into another.

enum class TensorForm { kCheckpoint, kSafetensors, kTorch, kHuggingFace };

// "checkpoint", "safetensors", "pt" or "hf".
std::string_view form_name(TensorForm form);
std::optional<TensorForm> form_of_name(std::string_view name);

struct TensorSource {
  TensorForm form = TensorForm::kCheckpoint;
  std::string path;
  std::vector<StateTensor> tensors;                     // by name
  RunState run;                                         // where a checkpoint's run is
  std::function<Tensor(const std::string& name)> read;  // whole, row-major
};

// Looks at what is there: a checkpoint's folder, or one of several (the newest that can
// be used); a Hugging Face folder (model.safetensors, or model.safetensors.index.json);
// a PyTorch file, for which `key` is as in read_torch_file; else a safetensors file.
// CheckpointError if it is none of them.
TensorSource open_tensors(const std::string& path, const std::string& key = "");

// The same without the moments of optimizers. A PyTorch file is refused: its tensors
// cannot be looked at before they are read.
TensorSource open_weights(const std::string& path);

struct ExportOptions {
  TensorForm form = TensorForm::kSafetensors;  // kCheckpoint is not for this
  std::optional<at::ScalarType> dtype;         // that floating tensors get; none: kept
  // The most that one file of a Hugging Face folder has; a larger tensor has its own.
  int64_t max_shard_bytes = 5'000'000'000;
};

// Writes tensors as a file, or, for Hugging Face, as a folder that has no weights yet.
// Returns the bytes of the tensors.
int64_t export_tensors(const TensorSource& source, const std::string& path,
                       const ExportOptions& options);

// Without the moments of optimizers: what a model is.
void keep_weights(TensorSource& source);

// Writes the tensors as a checkpoint into the folder `root`, cut into `num_files` files
// of about equal size. Everything is in memory once. Returns its path.
std::string write_checkpoint(const TensorSource& source, const std::string& root,
                             int num_files);

// How two sources differ in one tensor.
struct TensorDifference {
  std::string name;
  std::string form;       // what differs but values: "only in A", "F32 4x4 and F32 4"
  int64_t different = 0;  // elements; two that are no numbers are equal
  int64_t numel = 0;
  double max_absolute = 0;  // infinite if one is no number or infinite and one is not
  double max_relative = 0;  // over the larger of the two
};

// Every tensor that differs, by name; values are compared whatever the dtypes.
std::vector<TensorDifference> diff_tensors(const TensorSource& a,
                                           const TensorSource& b);

}  // namespace cohort
