// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/safetensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <string_view>

#include "cohort/checkpoint/safetensors_header.h"
#include "cohort/checkpoint/safetensors_reader.h"
#include "cohort/checkpoint/safetensors_writer.h"
#include "cohort/core/error.h"
#include "cohort/core/memory.h"

namespace cohort {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian, and bytes are copied as they lie");

[[noreturn]] void fail_file(const std::string& path, const std::string& what) {
  throw CheckpointError(text("[checkpoint.safetensors] ", path, ": ", what));
}

std::string_view bytes_of_tensor(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()),
          static_cast<size_t>(tensor.nbytes())};
}

// Detached, on the CPU, dense and contiguous. `where` is for messages.
std::vector<NamedTensor> prepared(std::span<const NamedTensor> tensors,
                                  const std::string& where) {
  std::vector<NamedTensor> out;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || safetensors_dtype(tensor.scalar_type()) == nullptr) {
      fail_file(where, text("tensor '", name, "': ",
                            tensor.defined() ? c10::toString(tensor.scalar_type())
                                             : "an undefined tensor",
                            "; legal: F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL"));
    }
    out.push_back({name, tensor.detach().cpu().contiguous()});
  }
  return out;
}

// For the message that memory is short: the largest tensor is the one to name.
std::string whole_text(const std::string& path, const SafetensorsReader& reader) {
  const auto& entries = reader.header().entries;
  const auto largest = std::max_element(
      entries.begin(), entries.end(),
      [](const auto& a, const auto& b) { return a.end - a.begin < b.end - b.begin; });
  const std::string name = largest == entries.end() ? "" : largest->name;
  return text("[checkpoint.safetensors] ", path, ": ", entries.size(),
              " tensors, the largest '", name, "'");
}

}  // namespace

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::map<std::string, Tensor> by_name;
  std::vector<StateTensor> saved;
  for (auto& [name, tensor] : prepared(tensors, path)) {
    saved.push_back(whole_tensor(name, tensor));
    by_name[name] = tensor;
  }
  SafetensorsWriter file(path, saved, metadata);
  sort_as_saved(saved);
  for (const auto& tensor : saved)
    file.write(bytes_of_tensor(by_name.at(tensor.spec.name)));
  file.finish();
}

SafetensorsFile read_safetensors(const std::string& path) {
  const SafetensorsReader reader(path);
  // The sum of all: each alone might fit.
  require_memory(reader.data_bytes(), ErrorKind::kCheckpoint, whole_text(path, reader));
  SafetensorsFile file;
  file.metadata = reader.header().metadata;
  for (const auto& entry : reader.header().entries)
    file.tensors.push_back({entry.name, reader.read(entry)});
  return file;
}

}  // namespace cohort
