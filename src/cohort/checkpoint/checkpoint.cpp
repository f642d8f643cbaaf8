// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/checkpoint.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cohort/checkpoint/safetensors_header.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/hash.h"
#include "cohort/core/memory.h"
#include "cohort/core/nearest.h"
#include "cohort/step/piece_overlap.h"

namespace cohort {
namespace {

constexpr int64_t kCachedBlock = 128 << 10;

[[noreturn]] void fail_read(const std::string& path, const std::string& what) {
  throw CheckpointError(text("[checkpoint.read] ", path, ": ", what));
}

std::string range_text(const TensorSpec& spec, const SavedBox& saved,
                       const SavedChunk& chunk) {
  return text("tensor '", spec.name, "'", box_text(saved.box), ", elements ",
              chunk.begin, " to ", chunk.end);
}

void check_size(const std::string& path, const ShardFile& file) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    fail_read(path, text("is missing: ", std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) fail_read(path, "is no regular file");
  if (info.st_size < file.bytes)
    fail_read(path, text("truncated: ", info.st_size, " bytes, expected ", file.bytes));
  if (info.st_size > file.bytes)
    fail_read(path,
              text("extra bytes: ", info.st_size, " bytes, expected ", file.bytes));
}

// Any other byte in a bool is undefined behaviour for code that computes with it.
bool is_bools(const char* bytes, int64_t count) {
  return std::all_of(bytes, bytes + count, [](char c) { return c == 0 || c == 1; });
}

}  // namespace

struct Checkpoint::OpenFile {
  std::string path;
  int fd = -1;

  explicit OpenFile(std::string name)
      : path(std::move(name)), fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd < 0) fail_read(path, text("cannot open: ", std::strerror(errno)));
    // Twice the system's own read-ahead; asking for stretches by WILLNEED was slower.
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  ~OpenFile() { ::close(fd); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  void read_at(int64_t offset, char* out, int64_t count) const {
    while (count > 0) {
      const ssize_t n = ::pread(fd, out, count, offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0)
        fail_read(path,
                  text("cannot read at byte ", offset, ": ", std::strerror(errno)));
      if (n == 0) fail_read(path, text("truncated: ends at byte ", offset));
      out += n;
      offset += n;
      count -= n;
    }
  }

  // Offsets come from the manifest; the header is for other programs, but one that lies
  // is damage all the same.
  void check_header(const ShardFile& file) const {
    uint64_t length = 0;
    if (file.bytes < 8) fail_read(path, text("truncated: ", file.bytes, " bytes"));
    read_at(0, reinterpret_cast<char*>(&length), 8);
    if (length > static_cast<uint64_t>(std::min(file.bytes - 8, kMostHeaderBytes)))
      fail_read(path, text("altered: a header of ", length, " bytes"));
    std::string header(8 + length, '\0');
    read_at(0, header.data(), static_cast<int64_t>(header.size()));
    const uint64_t hash = hash64(header);
    if (hash != file.header_hash)
      fail_read(path, text("altered: its header hashes to ", hex16(hash), ", expected ",
                           hex16(file.header_hash)));
  }
};

Checkpoint::Checkpoint(const std::string& folder) : path_(folder) {
  const std::string path = folder + "/manifest.json";
  manifest_ =
      parse_manifest(read_file(path, ErrorKind::kCheckpoint, kMostManifestBytes), path);
  for (const auto& file : manifest_.files) check_size(folder + "/" + file.name, file);
  files_.resize(manifest_.files.size());
}

Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

const TensorRecord* Checkpoint::find(const std::string& name) const {
  const auto found = std::lower_bound(
      manifest_.tensors.begin(), manifest_.tensors.end(), name,
      [](const auto& r, const auto& wanted) { return r.tensor.spec.name < wanted; });
  const bool there =
      found != manifest_.tensors.end() && found->tensor.spec.name == name;
  return there ? &*found : nullptr;
}

const TensorRecord& Checkpoint::tensor(const std::string& name) const {
  if (const auto* found = find(name)) return *found;
  std::vector<std::string> names;
  for (const auto& record : manifest_.tensors) names.push_back(record.tensor.spec.name);
  fail_read(path_,
            text("has no tensor '", name, "'; nearest: '", nearest(name, names), "'"));
}

Checkpoint::OpenFile& Checkpoint::open(int file) {
  if (!files_[file]) {
    auto opened = std::make_unique<OpenFile>(path_ + "/" + manifest_.files[file].name);
    opened->check_header(manifest_.files[file]);
    files_[file] = std::move(opened);
  }
  return *files_[file];
}

void Checkpoint::read_chunk(const TensorRecord& record, const SavedBox& saved,
                            const SavedChunk& chunk, char* out) {
  const TensorSpec& spec = record.tensor.spec;
  const int64_t bytes = (chunk.end - chunk.begin) * size_of(spec.dtype);
  const OpenFile& file = open(chunk.file);
  // In blocks that are still in the processor's cache when they are hashed.
  Hasher hasher;
  bool bools = true;
  std::vector<char> aside(out ? 0 : std::min(kCachedBlock, bytes));
  for (int64_t at = 0; at < bytes; at += kCachedBlock) {
    const int64_t count = std::min(kCachedBlock, bytes - at);
    char* const place = out ? out + at : aside.data();
    file.read_at(chunk.offset + at, place, count);
    hasher.update(place, static_cast<size_t>(count));
    bools = bools && (spec.dtype != at::kBool || is_bools(place, count));
  }
  const uint64_t hash = hasher.digest();
  if (hash != chunk.hash)
    fail_read(file.path, text("altered: ", range_text(spec, saved, chunk), ": bytes ",
                              chunk.offset, " to ", chunk.offset + bytes, " hash to ",
                              hex16(hash), ", expected ", hex16(chunk.hash)));
  if (!bools)
    fail_read(file.path,
              text(range_text(spec, saved, chunk), ": a bool that is neither 0 nor 1"));
}

// Straight to its place where it is wanted as it lies; else what is wanted of it.
void Checkpoint::read_part(const TensorRecord& record, const SavedBox& saved,
                           const SavedChunk& chunk, const StatePiece& wanted) {
  const TensorSpec& spec = record.tensor.spec;
  const TensorSpec& want = wanted.tensor.spec;
  const int64_t count = chunk.end - chunk.begin, size = size_of(spec.dtype);
  if (saved.box == want.box && wanted.data.scalar_type() == spec.dtype &&
      chunk.begin >= want.begin && chunk.end <= want.end) {
    auto* place = static_cast<char*>(wanted.data.mutable_data_ptr());
    return read_chunk(record, saved, chunk, place + (chunk.begin - want.begin) * size);
  }
  StatePiece part{record.tensor, {}};
  part.tensor.spec.box = saved.box;
  part.tensor.spec.begin = chunk.begin;
  part.tensor.spec.end = chunk.end;
  if (!overlap(part.tensor.spec, want)) return;
  require_memory(
      count * size, ErrorKind::kCheckpoint,
      text("[checkpoint.read] ", path_, ": ", range_text(spec, saved, chunk)));
  part.data = at::empty({count}, spec.dtype);
  read_chunk(record, saved, chunk, static_cast<char*>(part.data.mutable_data_ptr()));
  copy_overlap(part, wanted);
}

void Checkpoint::read_stored(const TensorRecord& record, const StatePiece& wanted) {
  const TensorSpec& want = wanted.tensor.spec;
  for (const auto& saved : record.boxes) {
    auto chunk = saved.chunks.begin();
    if (saved.box == want.box)
      chunk = std::ranges::upper_bound(saved.chunks, want.begin, {}, &SavedChunk::end);
    for (; chunk != saved.chunks.end(); ++chunk) {
      if (saved.box == want.box && chunk->begin >= want.end) break;
      read_part(record, saved, *chunk, wanted);
    }
  }
}

void Checkpoint::read(const StatePiece& wanted) {
  const TensorSpec& want = wanted.tensor.spec;
  const std::vector<int64_t>& order = wanted.tensor.order;
  const TensorRecord& record = tensor(want.name);
  const TensorSpec& spec = record.tensor.spec;
  COHORT_CHECK(wanted.data.is_contiguous() && wanted.data.device().is_cpu() &&
                   wanted.data.numel() == want.end - want.begin,
               "read '", want.name, "'");
  COHORT_CHECK(order.empty() || order.size() == spec.shape.size(), "order of '",
               want.name, "'");
  if (const auto trouble = box_trouble(want.box, spec.numel()); !trouble.empty())
    fail_read(path_, text("tensor '", want.name, "': ", trouble, " was asked for"));
  if (want.begin < 0 || want.end > want.box_numel())
    fail_read(path_,
              text("tensor '", want.name, "'", box_text(want.box), ": elements ",
                   want.begin, " to ", want.end, " asked of ", want.box_numel()));
  if (want.begin == want.end) return;
  if (order == record.tensor.order) return read_stored(record, wanted);
  const Tensor whole = read(want.name, wanted.data.scalar_type());
  const Tensor turned = order.empty() ? whole : whole.permute(order).contiguous();
  copy_overlap({record.tensor, turned.view({-1})}, wanted);
}

void Checkpoint::read(const std::string& name, int64_t begin, Tensor& out,
                      const std::vector<int64_t>& order) {
  COHORT_CHECK(out.is_contiguous(), "read '", name, "'");
  StatePiece wanted{tensor(name).tensor, out.view({-1})};
  wanted.tensor.order = order;
  wanted.tensor.spec.begin = begin;
  wanted.tensor.spec.end = begin + out.numel();
  read(wanted);
}

Tensor Checkpoint::read(const std::string& name, std::optional<at::ScalarType> dtype) {
  const TensorRecord& record = tensor(name);
  const TensorSpec& spec = record.tensor.spec;
  require_memory(spec.numel() * size_of(dtype.value_or(spec.dtype)),
                 ErrorKind::kCheckpoint,
                 text("[checkpoint.read] ", path_, ": tensor '", name, "'"));
  const auto flat = at::empty({spec.numel()}, dtype.value_or(spec.dtype));
  if (spec.numel() > 0) read_stored(record, {record.tensor, flat});
  return in_shape(flat, spec.shape, record.tensor.order).contiguous();
}

bool Checkpoint::intact(const TensorRecord& record, const SavedBox& box,
                        const SavedChunk& chunk) {
  try {
    read_chunk(record, box, chunk, nullptr);
  } catch (const CheckpointError&) {
    return false;
  }
  return true;
}

std::vector<std::string> Checkpoint::verify() {
  std::vector<std::string> troubles;
  const auto attempt = [&](const auto& body) {
    try {
      body();
      return true;
    } catch (const CheckpointError& error) {
      troubles.push_back(error.what());
      return false;
    }
  };
  std::vector<bool> opens(files_.size());
  for (size_t i = 0; i < files_.size(); ++i)
    opens[i] = attempt([&] { (void)open(static_cast<int>(i)); });
  for (const auto& record : manifest_.tensors) {
    for (const auto& saved : record.boxes)
      for (const auto& chunk : saved.chunks) {
        if (!opens[chunk.file]) continue;  // named already
        attempt([&] { read_chunk(record, saved, chunk, nullptr); });
      }
  }
  return troubles;
}

}  // namespace cohort
