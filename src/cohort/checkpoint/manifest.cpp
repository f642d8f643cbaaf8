// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/manifest.h"

#include <algorithm>
#include <limits>
#include <set>

#include "cohort/checkpoint/safetensors_header.h"
#include "cohort/core/error.h"

namespace cohort {
namespace {

[[noreturn]] void fail_table(const std::string& path, const std::string& what) {
  throw CheckpointError(text("[checkpoint.manifest] ", path, ": ", what));
}

// Elements times their size must stay in range, even beside a size of zero.
void check_shape(const StateTensor& tensor, const std::string& path) {
  const auto& [spec, kind, order] = tensor;
  const int64_t most = std::numeric_limits<int64_t>::max() / size_of(spec.dtype);
  bool fits = spec.shape.size() <= kMostDims && numel_within(spec.shape, most);
  if (!fits)
    fail_table(path, text("tensor '", spec.name, "': a shape that no tensor can have"));
  std::vector<int64_t> dims = order;
  std::sort(dims.begin(), dims.end());
  for (size_t d = 0; d < dims.size(); ++d)
    fits = fits && dims[d] == static_cast<int64_t>(d);
  if (!fits || (!order.empty() && order.size() != spec.shape.size()))
    fail_table(path, text("tensor '", spec.name, "': its order is no order of its ",
                          spec.shape.size(), " dimensions"));
}

// `left` has the bytes of each file that no chunk has taken yet.
void check_chunks(const TensorSpec& spec, const SavedBox& saved,
                  const std::vector<ShardFile>& files, std::vector<int64_t>& left,
                  const std::string& path) {
  const auto complain = [&](const std::string& what) {
    fail_table(path, text("tensor '", spec.name, "'", box_text(saved.box), ": ", what));
  };
  const int64_t numel = BoxMap(saved.box, spec.numel()).numel();
  int64_t next = 0;
  for (const auto& chunk : saved.chunks) {
    if (chunk.begin > next)
      complain(text("elements ", next, " to ", chunk.begin, " are missing"));
    if (chunk.begin < next || chunk.end <= chunk.begin || chunk.end > numel)
      complain(text("elements ", chunk.begin, " to ", chunk.end,
                    " are there twice or outside its ", numel));
    next = chunk.end;
    if (chunk.file < 0 || chunk.file >= static_cast<int>(files.size()))
      complain(text("lies in file ", chunk.file, " of ", files.size()));
    const int64_t bytes = (chunk.end - chunk.begin) * size_of(spec.dtype);
    if (chunk.offset < 0 || chunk.offset > files[chunk.file].bytes - bytes)
      complain(text("its bytes lie outside ", files[chunk.file].name));
    left[chunk.file] -= bytes;
    if (left[chunk.file] < 0)
      complain(text("chunks of ", files[chunk.file].bytes - left[chunk.file],
                    " bytes in ", files[chunk.file].name, ", which has ",
                    files[chunk.file].bytes));
  }
  if (next != numel) complain(text("elements ", next, " to ", numel, " are missing"));
}

// Both are boxes of one cut.
bool boxes_meet(const TensorBox& a, const TensorBox& b) {
  for (size_t d = 0; d < a.cut.size(); ++d)
    if (std::max(a.from[d], b.from[d]) >= std::min(a.to[d], b.to[d])) return false;
  return true;
}

// Boxes that do not meet and have together as many elements as the tensor are all of
// it.
void check_boxes(const TensorRecord& record, const std::string& path) {
  const TensorSpec& spec = record.tensor.spec;
  const auto& boxes = record.boxes;
  const auto complain = [&](const std::string& what) {
    fail_table(path, text("tensor '", spec.name, "': ", what));
  };
  if (boxes.size() > kMostBoxes)
    complain(text(boxes.size(), " boxes; legal: at most ", kMostBoxes));
  int64_t elements = 0;
  for (size_t i = 0; i < boxes.size(); ++i) {
    const TensorBox& box = boxes[i].box;
    if (box.cut != boxes[0].box.cut) complain("is cut in two ways");
    if (i > 0 && box.is_whole()) complain("is there twice, whole");
    for (size_t k = 0; k < i; ++k)
      if (boxes_meet(boxes[k].box, box))
        complain(text("its boxes ", box_text(boxes[k].box), " and ", box_text(box),
                      " overlap"));
    elements += BoxMap(box, spec.numel()).numel();
  }
  if (elements != spec.numel())
    complain(text("its boxes have ", elements, " of its ", spec.numel(), " elements"));
}

}  // namespace

bool same_form(const StateTensor& a, const StateTensor& b) {
  return a.kind == b.kind && a.order == b.order && a.spec.dtype == b.spec.dtype &&
         a.spec.shape == b.spec.shape;
}

void check_forms(const Manifest& manifest, const std::string& path) {
  for (const auto& [tensor, boxes] : manifest.tensors) {
    check_shape(tensor, path);
    for (const auto& saved : boxes)
      if (const auto trouble = box_trouble(saved.box, tensor.spec.numel());
          !trouble.empty())
        fail_table(path, text("tensor '", tensor.spec.name, "': ", trouble));
  }
}

void check_manifest(const Manifest& manifest, const std::string& path) {
  std::set<std::string> names;
  for (const auto& file : manifest.files) {
    if (file.name.empty() || file.name[0] == '.' ||
        file.name.find('/') != std::string::npos || file.bytes < 0)
      fail_table(path, text("'", file.name, "' is no plain file of a checkpoint"));
    if (!names.insert(file.name).second)
      fail_table(path, text("names the file '", file.name, "' twice"));
  }
  const RunState& run = manifest.run;
  if (run.step < 0 || run.epoch < 0 || run.sample < 0)
    fail_table(path, text("step ", run.step, ", epoch ", run.epoch, ", sample ",
                          run.sample, "; legal: from 0 on"));
  check_forms(manifest, path);
  std::vector<int64_t> left;
  for (const auto& file : manifest.files) left.push_back(file.bytes);
  const std::string* last = nullptr;
  for (const auto& record : manifest.tensors) {
    const std::string& name = record.tensor.spec.name;
    if (last && *last >= name)
      fail_table(path, text("the tensor '", name, "' is there twice or out of order"));
    last = &name;
    check_boxes(record, path);
    for (const auto& box : record.boxes)
      check_chunks(record.tensor.spec, box, manifest.files, left, path);
  }
}

}  // namespace cohort
