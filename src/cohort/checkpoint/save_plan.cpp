// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/save_plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <tuple>

#include "cohort/checkpoint/safetensors_header.h"
#include "cohort/core/error.h"
#include "cohort/core/hash.h"

namespace cohort {
namespace {

[[noreturn]] void fail_tensor(const std::string& name, const std::string& what) {
  throw CheckpointError(text("[checkpoint.save] tensor '", name, "': ", what));
}

int64_t bytes_of(const PlannedPiece& piece, const SavedChunk& chunk) {
  return (chunk.end - chunk.begin) * size_of(piece.tensor.spec.dtype);
}

std::string_view bytes_at(const PlannedPiece& piece, int64_t begin, int64_t end) {
  const TensorSpec& spec = piece.tensor.spec;
  const int64_t size = size_of(spec.dtype);
  const auto* data = static_cast<const char*>(piece.data.const_data_ptr());
  return {data + (begin - spec.begin) * size,
          static_cast<size_t>((end - begin) * size)};
}

PlannedPiece prepared(const StatePiece& piece) {
  const TensorSpec& spec = piece.tensor.spec;
  if (!piece.data.defined() || piece.data.scalar_type() != spec.dtype ||
      safetensors_dtype(spec.dtype) == nullptr)
    fail_tensor(spec.name,
                text(piece.data.defined() ? c10::toString(piece.data.scalar_type())
                                          : "an undefined tensor",
                     "; legal: ", safetensors_dtypes(), ", as its spec says"));
  if (const auto trouble = box_trouble(spec.box, spec.numel()); !trouble.empty())
    fail_tensor(spec.name, trouble);
  if (spec.begin < 0 || spec.end > spec.box_numel() ||
      piece.data.numel() != spec.end - spec.begin)
    fail_tensor(spec.name, text(piece.data.numel(), " elements for ", spec.begin,
                                " to ", spec.end, " of ", spec.box_numel()));
  if (!piece.data.is_contiguous()) fail_tensor(spec.name, "is not contiguous");
  return {piece.tensor, piece.data.detach().cpu(), {}};
}

// A box of the earlier checkpoint.
struct EarlierBox {
  const TensorRecord* record = nullptr;
  const SavedBox* box = nullptr;
};

// The same box of the same tensor, if that has the same form.
EarlierBox find(const Checkpoint* base, const StateTensor& tensor) {
  const auto* found = base ? base->find(tensor.spec.name) : nullptr;
  if (!found || !same_form(found->tensor, tensor)) return {};
  for (const auto& saved : found->boxes)
    if (saved.box == tensor.spec.box) return {found, &saved};
  return {};
}

// Takes the place of an equal chunk over. It is read first: a disk may have lost it,
// and what is linked to damage is born damaged.
void adopt(SavedChunk& chunk, const EarlierBox& earlier, Checkpoint& base) {
  const auto& chunks = earlier.box->chunks;
  const auto found = std::lower_bound(
      chunks.begin(), chunks.end(), chunk.begin,
      [](const SavedChunk& c, int64_t begin) { return c.begin < begin; });
  if (found == chunks.end() || found->begin != chunk.begin || found->end != chunk.end ||
      found->hash != chunk.hash)
    return;
  if (base.intact(*earlier.record, *earlier.box, *found)) chunk = *found;
}

void cut(PlannedPiece& piece, int64_t chunk_bytes, Checkpoint* base) {
  const TensorSpec& spec = piece.tensor.spec;
  const EarlierBox earlier = find(base, piece.tensor);
  const int64_t step = std::max<int64_t>(1, chunk_bytes / size_of(spec.dtype));
  for (int64_t begin = spec.begin; begin < spec.end;) {
    // Multiples within the box: the same cuts whichever rank holds it.
    const int64_t end = std::min(spec.end, (begin / step + 1) * step);
    SavedChunk chunk{.begin = begin, .end = end, .file = -1};
    chunk.hash = hash64(bytes_at(piece, begin, end));
    if (earlier.box) adopt(chunk, earlier, *base);
    piece.chunks.push_back(chunk);
    begin = end;
  }
}

// Neighbouring chunks of a piece that are to be written: one tensor of the file.
struct Run {
  const PlannedPiece* piece;
  size_t first, last;  // chunks [first, last)

  int64_t begin() const { return piece->chunks[first].begin; }
  int64_t end() const { return piece->chunks[last - 1].end; }
};

std::vector<Run> runs_of(const SavePlan& plan) {
  std::vector<Run> runs;
  for (const auto& piece : plan) {
    for (size_t i = 0; i < piece.chunks.size(); ++i) {
      if (piece.chunks[i].file >= 0) continue;
      const bool goes_on = i > 0 && piece.chunks[i - 1].file < 0;
      if (goes_on)
        runs.back().last = i + 1;
      else
        runs.push_back({&piece, i, i + 1});
    }
  }
  return runs;
}

// A whole row-major tensor has its own name and shape, so that any reader of
// safetensors can use it; a part is flat and says which elements of which box it has.
TensorEntry entry_of(const Run& run, int64_t at) {
  const auto& [spec, kind, order] = run.piece->tensor;
  TensorEntry entry{.name = spec.name, .dtype = spec.dtype, .shape = spec.shape};
  const bool whole =
      spec.box.is_whole() && run.begin() == 0 && run.end() == spec.numel();
  if (!whole || !order.empty()) {
    entry.name = text(spec.name, box_text(spec.box), "#", run.begin(), "-", run.end());
    entry.shape = {run.end() - run.begin()};
  }
  entry.begin = at;
  entry.end = at + (run.end() - run.begin()) * size_of(spec.dtype);
  return entry;
}

std::string header_of(const std::vector<Run>& runs, const std::string& path,
                      int64_t& data_bytes) {
  SafetensorsHeader header;
  for (const auto& run : runs) {
    header.entries.push_back(entry_of(run, data_bytes));
    data_bytes = header.entries.back().end;
  }
  const auto json = format_header(header, path);
  const uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + json;
}

// Gives the chunks that were just written their places.
void place(SavePlan& plan, const std::vector<Run>& runs, int64_t at, ShardFile& file) {
  Hasher hasher;
  hasher.update(&file.header_hash, sizeof(file.header_hash));
  for (const auto& run : runs) {
    auto& piece = plan[static_cast<size_t>(run.piece - plan.data())];
    for (size_t i = run.first; i < run.last; ++i) {
      SavedChunk& chunk = piece.chunks[i];
      chunk.offset = at;
      at += bytes_of(piece, chunk);
      hasher.update(&chunk.hash, sizeof(chunk.hash));
    }
  }
  file.hash = hasher.digest();
}

ShardFile write_file(SavePlan& plan, const std::vector<Run>& runs,
                     const std::filesystem::path& path, Disk& disk) {
  int64_t data_bytes = 0;
  const std::string header = header_of(runs, path.string(), data_bytes);
  ShardFile file{.name = path.filename().string(),
                 .bytes = static_cast<int64_t>(header.size()) + data_bytes,
                 .header_hash = hash64(header)};
  const auto out = disk.create(path);
  out->write(header);
  for (const auto& run : runs) out->write(bytes_at(*run.piece, run.begin(), run.end()));
  out->finish();
  place(plan, runs, static_cast<int64_t>(header.size()), file);
  return file;
}

// The box of a record that is being merged; a new one if it had none like it.
SavedBox& merged_box(TensorRecord& record, const TensorBox& box) {
  for (auto& saved : record.boxes)
    if (saved.box == box) return saved;
  return record.boxes.emplace_back(SavedBox{box, {}});
}

}  // namespace

SavePlan make_plan(std::span<const StatePiece> pieces, int64_t chunk_bytes,
                   Checkpoint* base) {
  SavePlan plan;
  for (const auto& piece : pieces) plan.push_back(prepared(piece));
  std::sort(plan.begin(), plan.end(), [](const auto& a, const auto& b) {
    const auto &x = a.tensor.spec, &y = b.tensor.spec;
    return std::tuple(-size_of(x.dtype), std::cref(x.name).get(), x.box.from, x.begin) <
           std::tuple(-size_of(y.dtype), std::cref(y.name).get(), y.box.from, y.begin);
  });
  for (auto& piece : plan) cut(piece, chunk_bytes, base);
  return plan;
}

int64_t total_bytes(const SavePlan& plan) {
  int64_t bytes = 0;
  for (const auto& piece : plan) bytes += static_cast<int64_t>(piece.data.nbytes());
  return bytes;
}

std::map<std::string, int64_t> shared_bytes(const SavePlan& plan,
                                            const Manifest& base) {
  std::map<std::string, int64_t> shared;
  for (const auto& piece : plan)
    for (const auto& chunk : piece.chunks)
      if (chunk.file >= 0)
        shared[base.files[chunk.file].name] += bytes_of(piece, chunk);
  return shared;
}

void share_only(SavePlan& plan, const Manifest& base,
                const std::set<std::string>& files) {
  for (auto& piece : plan)
    for (auto& chunk : piece.chunks)
      if (chunk.file >= 0 && !files.count(base.files[chunk.file].name)) chunk.file = -1;
}

std::string linked_name(const ShardFile& file) {
  return "linked-" + hex16(file.hash) + ".safetensors";
}

Manifest write_shard(const SavePlan& plan, const Manifest& base,
                     const std::filesystem::path& path, Disk& disk) {
  SavePlan placed = plan;
  Manifest part;
  const auto runs = runs_of(placed);
  if (!runs.empty()) part.files.push_back(write_file(placed, runs, path, disk));
  std::map<int, int> linked;  // file of the base -> file of the part
  for (auto& piece : placed) {
    for (auto& chunk : piece.chunks) {
      if (chunk.file < 0) {
        chunk.file = 0;
        continue;
      }
      const auto [found, added] =
          linked.emplace(chunk.file, static_cast<int>(part.files.size()));
      if (added) {
        part.files.push_back(base.files[chunk.file]);
        part.files.back().name = linked_name(base.files[chunk.file]);
      }
      chunk.file = found->second;
    }
    part.tensors.push_back(
        {piece.tensor, {{piece.tensor.spec.box, std::move(piece.chunks)}}});
  }
  return part;
}

Manifest merge_parts(std::span<const Manifest> parts, const std::string& path) {
  Manifest whole;
  std::map<std::string, int> files;
  std::map<std::string, TensorRecord> tensors;
  for (const auto& part : parts) {
    for (const auto& file : part.files)
      if (files.emplace(file.name, static_cast<int>(whole.files.size())).second)
        whole.files.push_back(file);
    for (const auto& record : part.tensors) {
      const auto [found, added] =
          tensors.try_emplace(record.tensor.spec.name, TensorRecord{record.tensor, {}});
      found->second.tensor.spec.box = {};
      if (!added && !same_form(found->second.tensor, record.tensor))
        fail_tensor(record.tensor.spec.name, "two ranks say two things of its form");
      for (const auto& [box, chunks] : record.boxes) {
        SavedBox& merged = merged_box(found->second, box);
        for (SavedChunk chunk : chunks) {
          chunk.file = files.at(part.files[chunk.file].name);
          merged.chunks.push_back(chunk);
        }
      }
    }
  }
  for (auto& [name, record] : tensors) {
    std::ranges::sort(record.boxes, {}, [](const SavedBox& s) { return s.box.from; });
    for (auto& saved : record.boxes)
      std::ranges::sort(saved.chunks, {}, &SavedChunk::begin);
    whole.tensors.push_back(std::move(record));
  }
  check_manifest(whole, path);
  return whole;
}

}  // namespace cohort
