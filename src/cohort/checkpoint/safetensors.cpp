// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/safetensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <string_view>

#include "cohort/checkpoint/safetensors_header.h"
#include "cohort/checkpoint/safetensors_reader.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"
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

// Detached, on the CPU, dense and contiguous; sorted by name. `where` is for messages.
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
  std::sort(out.begin(), out.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

// Wide elements first, so that every tensor is aligned to its elements in the file
// though the format allows no gaps; then by name.
std::vector<size_t> data_order(const std::vector<NamedTensor>& tensors) {
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return tensors[a].tensor.element_size() > tensors[b].tensor.element_size();
  });
  return order;
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
  const auto sorted = prepared(tensors, path);
  const auto order = data_order(sorted);
  SafetensorsHeader header{.entries = std::vector<TensorEntry>(sorted.size()),
                           .metadata = metadata};
  std::vector<std::string_view> pieces(2);
  int64_t next = 0;
  for (const size_t i : order) {
    const auto& [name, tensor] = sorted[i];
    const auto bytes = bytes_of_tensor(tensor);
    header.entries[i] = {name, tensor.scalar_type(), tensor.sizes().vec(), next,
                         next + static_cast<int64_t>(bytes.size())};
    next = header.entries[i].end;
    pieces.push_back(bytes);
  }
  const auto json = format_header(header, path);
  if (static_cast<int64_t>(json.size()) > kMostHeaderBytes) {
    fail_file(path, text("a header of ", json.size(), " bytes; legal: at most ",
                         kMostHeaderBytes));
  }
  const uint64_t length = json.size();
  pieces[0] = {reinterpret_cast<const char*>(&length), sizeof(length)};
  pieces[1] = json;
  write_file_atomically(path, pieces, ErrorKind::kCheckpoint);
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
