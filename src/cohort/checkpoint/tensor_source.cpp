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
#include "cohort/checkpoint/safetensors_reader.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/memory.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHubFile = "model.safetensors";
constexpr const char* kHubIndex = "model.safetensors.index.json";

[[noreturn]] void fail_source(const std::string& path, const std::string& what) {
  throw CheckpointError(text("[checkpoint.tensors] ", path, ": ", what));
}

// A state_dict does not say which of its tensors are trained.
TensorKind guess_kind(const std::string& name, at::ScalarType dtype) {
  for (const char* end : {"running_mean", "running_var", "num_batches_tracked"})
    if (name.ends_with(end)) return TensorKind::kBuffer;
  return at::isFloatingType(dtype) ? TensorKind::kParameter : TensorKind::kBuffer;
}

TensorSource from_memory(TensorForm form, const std::string& path,
                         std::vector<NamedTensor> tensors) {
  auto held = std::make_shared<std::map<std::string, Tensor>>();
  TensorSource source{.form = form, .path = path};
  for (auto& [name, tensor] : tensors) (*held)[name] = tensor;
  for (const auto& [name, tensor] : *held)
    source.tensors.push_back({.spec = spec_of(name, tensor),
                              .kind = guess_kind(name, tensor.scalar_type()),
                              .order = {}});
  source.read = [held, path](const std::string& name) {
    const Tensor& tensor = held->at(name);
    if (!tensor.is_contiguous())
      require_memory(static_cast<int64_t>(tensor.nbytes()), ErrorKind::kCheckpoint,
                     text("[checkpoint.tensors] ", path, ": tensor '", name, "'"));
    return tensor.contiguous();
  };
  return source;
}

// Where each tensor lies, in open files.
struct Shelf {
  std::map<std::string, SafetensorsReader> files;
  struct Spot {
    const SafetensorsReader* file;
    const TensorEntry* entry;
  };
  std::map<std::string, Spot> tensors;
};

TensorSource from_files(TensorForm form, const std::string& path,
                        std::shared_ptr<const Shelf> shelf) {
  TensorSource source{.form = form, .path = path};
  for (const auto& [name, place] : shelf->tensors) {
    TensorSpec spec{
        .name = name, .shape = place.entry->shape, .dtype = place.entry->dtype};
    spec.end = spec.numel();
    source.tensors.push_back(
        {.spec = spec, .kind = guess_kind(name, spec.dtype), .order = {}});
  }
  source.read = [shelf](const std::string& name) {
    const auto& [file, entry] = shelf->tensors.at(name);
    return file->read(*entry);
  };
  return source;
}

TensorSource from_file(TensorForm form, const std::string& path,
                       const std::string& file) {
  auto shelf = std::make_shared<Shelf>();
  const auto& reader = shelf->files.try_emplace(file, file).first->second;
  for (const auto& entry : reader.header().entries)
    shelf->tensors[entry.name] = {&reader, &entry};
  return from_files(form, path, std::move(shelf));
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
  const auto map = parse_weight_map(
      read_file(index, ErrorKind::kCheckpoint, kMostHeaderBytes), index);
  auto shelf = std::make_shared<Shelf>();
  for (const auto& [name, file] : map) {
    if (file.find('/') != std::string::npos)
      fail_source(index,
                  text("'", name, "' lies in '", file, "'; legal: a file beside it"));
    shelf->files.try_emplace(file, path + "/" + file);
  }
  for (const auto& [name, file] : map) {
    const SafetensorsReader& reader = shelf->files.at(file);
    const auto* entry = reader.find(name);
    if (!entry)
      fail_source(index,
                  text("says that '", name, "' lies in ", file, "; it does not"));
    shelf->tensors[name] = {&reader, entry};
  }
  return from_files(TensorForm::kHuggingFace, path, std::move(shelf));
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
      return from_file(TensorForm::kHuggingFace, path, path + "/" + kHubFile);
    std::vector<std::string> troubles;
    if (const auto newest = latest_checkpoint(path, &troubles))
      return from_checkpoint(*newest);
    if (!troubles.empty()) throw CheckpointError(troubles.front());
    fail_source(
        path, text("has no checkpoint; legal: a folder with step-..., manifest.json, ",
                   kHubFile, " or ", kHubIndex));
  }
  if (is_zip(path))
    return from_memory(TensorForm::kTorch, path, read_torch_file(path, key));
  return from_file(TensorForm::kSafetensors, path, path);
}

TensorSource open_weights(const std::string& path) {
  if (!fs::is_directory(path) && is_zip(path))
    fail_source(path, text("is a PyTorch file; legal: what `cohort checkpoint export ",
                           path, " OUT --to safetensors` makes of it"));
  TensorSource source = open_tensors(path);
  keep_weights(source);
  return source;
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
