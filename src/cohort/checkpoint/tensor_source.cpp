// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/tensor_source.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "cohort/checkpoint/checkpoint.h"
#include "cohort/checkpoint/safetensors.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHubFile = "model.safetensors";
constexpr const char* kHubIndex = "model.safetensors.index.json";

[[noreturn]] void fail_source(const std::string& path, const std::string& what) {
  throw CheckpointError(text("[checkpoint.tensors] ", path, ": ", what));
}

// A state_dict does not say which of its tensors are trained.
TensorKind guess_kind(const std::string& name, const Tensor& tensor) {
  for (const char* end : {"running_mean", "running_var", "num_batches_tracked"})
    if (name.ends_with(end)) return TensorKind::kBuffer;
  return tensor.is_floating_point() ? TensorKind::kParameter : TensorKind::kBuffer;
}

TensorSource from_memory(TensorForm form, const std::string& path,
                         std::vector<NamedTensor> tensors) {
  auto held = std::make_shared<std::map<std::string, Tensor>>();
  TensorSource source{.form = form, .path = path};
  for (auto& [name, tensor] : tensors) (*held)[name] = tensor.contiguous();
  for (const auto& [name, tensor] : *held)
    source.tensors.push_back(
        {.spec = spec_of(name, tensor), .kind = guess_kind(name, tensor), .order = {}});
  source.read = [held](const std::string& name) { return held->at(name); };
  return source;
}

TensorSource from_checkpoint(const std::string& path) {
  auto saved = std::make_shared<Checkpoint>(path);
  TensorSource source{.form = TensorForm::kCheckpoint, .path = path};
  source.run = saved->manifest().run;
  for (const auto& record : saved->manifest().tensors)
    source.tensors.push_back(record.tensor);
  source.read = [saved](const std::string& name) { return saved->read(name); };
  return source;
}

TensorSource from_hub_index(const std::string& path) {
  const std::string index = path + "/" + kHubIndex;
  const auto map = parse_weight_map(read_file(index, ErrorKind::kCheckpoint), index);
  std::map<std::string, std::map<std::string, Tensor>> files;
  for (const auto& [name, file] : map) {
    if (file.find('/') != std::string::npos)
      fail_source(index,
                  text("'", name, "' lies in '", file, "'; legal: a file beside it"));
    files[file];
  }
  for (auto& [file, held] : files)
    for (auto& [name, tensor] : read_safetensors(path + "/" + file).tensors)
      held[name] = tensor;
  std::vector<NamedTensor> tensors;
  for (const auto& [name, file] : map) {
    const auto found = files[file].find(name);
    if (found == files[file].end())
      fail_source(index,
                  text("says that '", name, "' lies in ", file, "; it does not"));
    tensors.push_back({name, found->second});
  }
  return from_memory(TensorForm::kHuggingFace, path, std::move(tensors));
}

bool is_zip(const std::string& path) {
  char start[4] = {};
  std::ifstream(path, std::ios::binary).read(start, 4);
  return std::string_view(start, 4) == "PK\x03\x04";
}

std::vector<NamedTensor> converted(const TensorSource& source,
                                   const std::vector<StateTensor>& wanted,
                                   const ExportOptions& options) {
  std::vector<NamedTensor> out;
  for (const auto& tensor : wanted) {
    auto value = source.read(tensor.spec.name);
    if (options.dtype && value.is_floating_point()) value = value.to(*options.dtype);
    out.push_back({tensor.spec.name, std::move(value)});
  }
  return out;
}

int64_t exported_bytes(const StateTensor& tensor, const ExportOptions& options) {
  const bool cast = options.dtype && at::isFloatingType(tensor.spec.dtype);
  return tensor.spec.numel() * size_of(cast ? *options.dtype : tensor.spec.dtype);
}

// Neighbours by name until a file is full.
std::vector<std::vector<StateTensor>> hub_files(const TensorSource& source,
                                                const ExportOptions& options) {
  std::vector<std::vector<StateTensor>> files(1);
  int64_t bytes = 0;
  for (const auto& tensor : source.tensors) {
    const int64_t more = exported_bytes(tensor, options);
    if (!files.back().empty() && bytes + more > options.max_shard_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().push_back(tensor);
    bytes += more;
  }
  return files;
}

void export_hub(const TensorSource& source, const std::string& path,
                const ExportOptions& options, int64_t total) {
  make_folder(path, ErrorKind::kCheckpoint);
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.path().extension() == ".safetensors")
      fail_source(path, text("has weights already: ", entry.path().filename().string(),
                             "; legal: a folder without"));
  const auto files = hub_files(source, options);
  std::map<std::string, std::string> map;
  for (size_t i = 0; i < files.size(); ++i) {
    const auto name =
        files.size() == 1
            ? std::string(kHubFile)
            : shard_name(static_cast<int64_t>(i), static_cast<int64_t>(files.size()));
    write_safetensors(path + "/" + name, converted(source, files[i], options),
                      {{"format", "pt"}});
    for (const auto& tensor : files[i]) map[tensor.spec.name] = name;
  }
  if (files.size() > 1)
    write_file_atomically(path + "/" + kHubIndex, format_weight_map(map, total),
                          ErrorKind::kCheckpoint);
}

}  // namespace

std::string_view form_name(TensorForm form) {
  switch (form) {
    case TensorForm::kSafetensors:
      return "safetensors";
    case TensorForm::kTorch:
      return "pt";
    case TensorForm::kHuggingFace:
      return "hf";
    case TensorForm::kCheckpoint:
      break;
  }
  return "checkpoint";
}

std::optional<TensorForm> form_of_name(std::string_view name) {
  for (const auto form : {TensorForm::kCheckpoint, TensorForm::kSafetensors,
                          TensorForm::kTorch, TensorForm::kHuggingFace})
    if (name == form_name(form)) return form;
  return std::nullopt;
}

TensorSource open_tensors(const std::string& path, const std::string& key) {
  if (!fs::exists(path)) fail_source(path, "is not there");
  if (fs::is_directory(path)) {
    if (fs::exists(path + "/manifest.json")) return from_checkpoint(path);
    if (fs::exists(path + "/" + kHubIndex)) return from_hub_index(path);
    if (fs::exists(path + "/" + kHubFile))
      return from_memory(TensorForm::kHuggingFace, path,
                         read_safetensors(path + "/" + kHubFile).tensors);
    if (const auto newest = latest_checkpoint(path)) return from_checkpoint(*newest);
    const auto damaged = list_checkpoints(path);
    if (!damaged.empty()) throw CheckpointError(damaged.back().trouble);
    fail_source(
        path, text("has no checkpoint; legal: a folder with step-..., manifest.json, ",
                   kHubFile, " or ", kHubIndex));
  }
  if (is_zip(path))
    return from_memory(TensorForm::kTorch, path, read_torch_file(path, key));
  return from_memory(TensorForm::kSafetensors, path, read_safetensors(path).tensors);
}

int64_t export_tensors(const TensorSource& source, const std::string& path,
                       const ExportOptions& options) {
  int64_t bytes = 0;
  for (const auto& tensor : source.tensors) bytes += exported_bytes(tensor, options);
  switch (options.form) {
    case TensorForm::kSafetensors:
      write_safetensors(path, converted(source, source.tensors, options),
                        {{"format", "pt"}});
      break;
    case TensorForm::kTorch:
      write_torch_file(path, converted(source, source.tensors, options));
      break;
    case TensorForm::kHuggingFace:
      export_hub(source, path, options, bytes);
      break;
    case TensorForm::kCheckpoint:
      COHORT_CHECK(false, "a checkpoint is no form to export to");
  }
  return bytes;
}

void keep_weights(TensorSource& source) {
  std::erase_if(source.tensors, [](const StateTensor& tensor) {
    return tensor.kind == TensorKind::kMoment;
  });
}

}  // namespace cohort
