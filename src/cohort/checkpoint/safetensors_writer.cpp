// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/safetensors_writer.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "cohort/checkpoint/safetensors_header.h"

namespace cohort {
namespace {

[[noreturn]] void fail_writer(const std::string& path, const std::string& what) {
  throw CheckpointError(text("[checkpoint.safetensors] ", path, ": ", what));
}

void check_dtypes(const std::vector<StateTensor>& tensors, const std::string& path) {
  for (const auto& [spec, kind, order] : tensors)
    if (!safetensors_dtype(spec.dtype))
      fail_writer(path, text("tensor '", spec.name, "': ", c10::toString(spec.dtype),
                             "; legal: ", safetensors_dtypes()));
}

}  // namespace

void sort_as_saved(std::vector<StateTensor>& tensors) {
  std::ranges::stable_sort(tensors, [](const StateTensor& a, const StateTensor& b) {
    return std::tuple(-size_of(a.spec.dtype), std::cref(a.spec.name).get()) <
           std::tuple(-size_of(b.spec.dtype), std::cref(b.spec.name).get());
  });
}

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     std::vector<StateTensor> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), file_(path, ErrorKind::kCheckpoint) {
  check_dtypes(tensors, path);
  sort_as_saved(tensors);
  SafetensorsHeader header{.entries = {}, .metadata = metadata};
  for (const auto& [spec, kind, order] : tensors) {
    header.entries.push_back(
        {spec.name, spec.dtype, spec.shape, left_, left_ + spec.bytes()});
    left_ += spec.bytes();
  }
  std::ranges::sort(header.entries, {}, &TensorEntry::name);
  const auto json = format_header(header, path);
  const auto length = static_cast<int64_t>(json.size());
  if (length > kMostHeaderBytes)
    fail_writer(path, text("a header of ", length, " bytes; legal: at most ",
                           kMostHeaderBytes));
  file_.write({reinterpret_cast<const char*>(&length), sizeof(length)});
  file_.write(json);
}

void SafetensorsWriter::write(std::string_view bytes) {
  left_ -= static_cast<int64_t>(bytes.size());
  COHORT_CHECK(left_ >= 0, path_, ": ", -left_, " bytes too many");
  file_.write(bytes);
}

void SafetensorsWriter::finish() {
  COHORT_CHECK(left_ == 0, path_, ": ", left_, " bytes are missing");
  file_.finish();
}

}  // namespace cohort
