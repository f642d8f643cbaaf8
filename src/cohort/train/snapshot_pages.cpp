// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/snapshot_pages.h"

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "cohort/core/error.h"
#include "cohort/core/hash.h"

namespace cohort {
namespace {

constexpr uint64_t kMagic = 0x32706e7374726f63;  // "cortsnp2"
constexpr int64_t kPage = 4096;
constexpr int64_t kAlign = 64;  // alignment of a piece
// What the text of a run may grow by between two snapshots.
constexpr int64_t kTextSlack = 16 * kPage;
// Bytes that are copied and hashed at once: what is copied is in the cache to be
// hashed.
constexpr int64_t kStretch = 1 << 20;
constexpr int64_t kStretchesOfThread = 4;  // or more

int64_t round_up(int64_t bytes, int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

int64_t bytes_of(const StatePiece& piece) {
  return static_cast<int64_t>(piece.data.nbytes());
}

// The hash of one stretch of data that lies at `place` among all data. A sum of such
// hashes does not depend on which is made first.
uint64_t stretch_hash(const char* data, int64_t bytes, int64_t at, int64_t place) {
  const int64_t count = std::min(kStretch, bytes - at);
  return hash64({data + at, static_cast<size_t>(count)},
                static_cast<uint64_t>(place + at));
}

uint64_t sum_of_hashes(const char* data, int64_t bytes, int64_t place) {
  uint64_t sum = 0;
  for (int64_t at = 0; at < bytes; at += kStretch)
    sum += stretch_hash(data, bytes, at, place);
  return sum;
}

// Returns the sum of its hashes, of what is copied and not of the copy.
uint64_t copy(const StatePiece& piece, char* to, int64_t place) {
  const int64_t bytes = bytes_of(piece);
  if (!piece.data.is_cpu()) {
    at::from_blob(to, {piece.data.numel()}, piece.data.scalar_type())
        .copy_(piece.data.view({-1}));
    return sum_of_hashes(to, bytes, place);
  }
  const auto* from = static_cast<const char*>(piece.data.const_data_ptr());
  std::atomic<uint64_t> sum{0};
  at::parallel_for(0, (bytes + kStretch - 1) / kStretch, kStretchesOfThread,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t at = begin * kStretch; at < end * kStretch;
                          at += kStretch) {
                       std::memcpy(to + at, from + at, std::min(kStretch, bytes - at));
                       sum += stretch_hash(from, bytes, at, place);
                     }
                   });
  return sum;
}

[[noreturn]] void fail_snapshot(const char* what, int64_t bytes) {
  throw CheckpointError(
      text("[train.snapshot] ", what, " of ", bytes, " bytes: ", std::strerror(errno)));
}

}  // namespace

struct SnapshotPages::Header {
  uint64_t magic;
  std::atomic<uint64_t> complete;  // mark(), written last; 0: something is missing
  int64_t step, generation, world, rank;
  int64_t run_bytes, tables_bytes;
  int64_t data_at;  // bytes from the start of the pages
  uint64_t data_hash;
};

int64_t SnapshotPlan::total_bytes() const {
  const auto texts = static_cast<int64_t>(tables.size()) + kTextSlack;
  return kPage + round_up(texts, kPage) + round_up(data_bytes, kPage);
}

SnapshotPlan plan_snapshot(std::span<const StatePiece> pieces) {
  SnapshotPlan plan;
  Manifest part;
  for (const auto& piece : pieces) {
    const TensorSpec& spec = piece.tensor.spec;
    plan.offsets.push_back(plan.data_bytes);
    part.tensors.push_back(
        {.tensor = piece.tensor,
         .boxes = {
             {spec.box,
              {{.begin = spec.begin, .end = spec.end, .offset = plan.data_bytes}}}}});
    plan.data_bytes = round_up(plan.data_bytes + bytes_of(piece), kAlign);
  }
  plan.tables = format_part(part, "snapshot");
  return plan;
}

std::shared_ptr<SnapshotPages> SnapshotPages::create(int64_t bytes) {
  const int fd = ::memfd_create("cohort-snapshot", MFD_CLOEXEC);
  if (fd < 0) fail_snapshot("no memory for a snapshot", bytes);
  if (::ftruncate(fd, bytes) != 0) {
    ::close(fd);
    fail_snapshot("no memory for a snapshot", bytes);
  }
  if (auto pages = map(fd)) return pages;
  fail_snapshot("no memory for a snapshot", bytes);
}

std::shared_ptr<SnapshotPages> SnapshotPages::map(int fd) {
  struct stat info {};
  const bool fits = ::fstat(fd, &info) == 0 && info.st_size >= kPage;
  void* const memory =
      fits ? ::mmap(nullptr, info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
           : MAP_FAILED;
  if (memory == MAP_FAILED) {
    ::close(fd);
    return nullptr;
  }
  return std::shared_ptr<SnapshotPages>(new SnapshotPages(fd, memory, info.st_size));
}

SnapshotPages::SnapshotPages(int fd, void* memory, int64_t bytes)
    : fd_(fd), memory_(static_cast<char*>(memory)), bytes_(bytes) {}

SnapshotPages::~SnapshotPages() {
  ::munmap(memory_, static_cast<size_t>(bytes_));
  ::close(fd_);
}

SnapshotPages::Header& SnapshotPages::header() const {
  return *reinterpret_cast<Header*>(memory_);
}

void SnapshotPages::warm(int64_t begin, int64_t count) {
  count = std::min(count, bytes_ - begin);
#ifdef MADV_POPULATE_WRITE
  if (::madvise(memory_ + begin, static_cast<size_t>(count), MADV_POPULATE_WRITE) == 0)
    return;
#endif
  // Reading makes a page of shared memory real as well.
  for (int64_t at = begin; at < begin + count; at += kPage)
    (void)*static_cast<volatile const char*>(memory_ + at);
}

bool SnapshotPages::write(const SnapshotTitle& title, const RunState& run,
                          const SnapshotPlan& plan,
                          std::span<const StatePiece> pieces) {
  COHORT_CHECK(pieces.size() == plan.offsets.size(), "pieces of another plan");
  const c10::NoGradGuard no_grad;
  const std::string words = format_part({.run = run}, "snapshot");
  Header& head = header();
  const auto text_bytes = static_cast<int64_t>(words.size() + plan.tables.size());
  const int64_t data_at = kPage + round_up(text_bytes, kPage);
  if (data_at + plan.data_bytes > bytes_) return false;
  clear();
  head.magic = kMagic;
  head.step = title.step;
  head.generation = title.generation;
  head.world = title.world;
  head.rank = title.rank;
  head.run_bytes = static_cast<int64_t>(words.size());
  head.tables_bytes = static_cast<int64_t>(plan.tables.size());
  head.data_at = data_at;
  std::memcpy(memory_ + kPage, words.data(), words.size());
  std::memcpy(memory_ + kPage + words.size(), plan.tables.data(), plan.tables.size());
  head.data_hash = 0;
  for (size_t i = 0; i < pieces.size(); ++i)
    head.data_hash +=
        copy(pieces[i], memory_ + data_at + plan.offsets[i], plan.offsets[i]);
  head.complete.store(mark(), std::memory_order_seq_cst);
  return true;
}

void SnapshotPages::clear() {
  header().complete.store(0, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // before any byte changes
}

std::string_view SnapshotPages::run_text() const {
  return {memory_ + kPage, static_cast<size_t>(header().run_bytes)};
}

std::string_view SnapshotPages::tables_text() const {
  return {memory_ + kPage + header().run_bytes,
          static_cast<size_t>(header().tables_bytes)};
}

// Never 0, so that 0 can say that something is missing.
uint64_t SnapshotPages::mark() const {
  const Header& head = header();
  return fingerprint(head.step, head.generation, head.world, head.rank, head.data_at,
                     static_cast<int64_t>(head.data_hash), run_text(), tables_text()) |
         1;
}

std::optional<SnapshotTitle> SnapshotPages::title() const {
  const Header& head = header();
  const uint64_t complete = head.complete.load(std::memory_order_seq_cst);
  if (head.magic != kMagic || complete == 0) return std::nullopt;
  const bool inside = head.run_bytes >= 0 && head.tables_bytes >= 0 &&
                      head.run_bytes <= bytes_ && head.tables_bytes <= bytes_ &&
                      kPage + head.run_bytes + head.tables_bytes <= head.data_at &&
                      head.data_at <= bytes_ && head.data_at % kPage == 0;
  if (!inside || mark() != complete) return std::nullopt;
  return SnapshotTitle{.step = head.step,
                       .generation = head.generation,
                       .world = static_cast<int>(head.world),
                       .rank = static_cast<int>(head.rank)};
}

// The rank that left the pages may have been killed, or be no rank of ours: a piece
// outside them would be memory of somebody else.
int64_t SnapshotPages::place_of(const TensorRecord& record) const {
  const TensorSpec& spec = record.tensor.spec;
  const int64_t room = bytes_ - header().data_at;
  const int64_t size = size_of(spec.dtype);
  const bool one = record.boxes.size() == 1 && record.boxes[0].chunks.size() == 1;
  const SavedChunk chunk = one ? record.boxes[0].chunks[0] : SavedChunk{.begin = -1};
  if (chunk.begin < 0 || chunk.end < chunk.begin || chunk.offset < 0 ||
      chunk.offset > room || chunk.offset % size != 0 ||
      chunk.end > BoxMap(record.boxes[0].box, spec.numel()).numel() ||
      chunk.end - chunk.begin > (room - chunk.offset) / size)
    throw CheckpointError(text("[train.snapshot] '", spec.name,
                               "' lies outside its snapshot of ", bytes_, " bytes"));
  return header().data_at + chunk.offset;
}

std::string SnapshotPages::damage() const {
  const Header& head = header();
  uint64_t hash = 0;
  for (const auto& record : parse_part(tables_text(), "snapshot").tensors) {
    const char* const place = memory_ + place_of(record);
    const SavedChunk& chunk = record.boxes[0].chunks[0];
    const auto bytes = (chunk.end - chunk.begin) *
                       static_cast<int64_t>(c10::elementSize(record.tensor.spec.dtype));
    hash += sum_of_hashes(place, bytes, chunk.offset);
  }
  if (hash == head.data_hash) return "";
  return text("[train.snapshot] rank ", head.rank, "'s part of step ", head.step,
              " has changed by itself in memory");
}

RunState SnapshotPages::run() const { return parse_part(run_text(), "snapshot").run; }

std::vector<StatePiece> SnapshotPages::pieces() const {
  std::vector<StatePiece> out;
  for (auto& record : parse_part(tables_text(), "snapshot").tensors) {
    char* const place = memory_ + place_of(record);
    TensorSpec& spec = record.tensor.spec;
    const auto& [box, chunks] = record.boxes[0];
    spec.box = box;
    spec.begin = chunks[0].begin;
    spec.end = chunks[0].end;
    out.push_back(
        {record.tensor, at::from_blob(
                            place, {spec.end - spec.begin},
                            [keep = shared_from_this()](void*) {}, spec.dtype)});
  }
  return out;
}

}  // namespace cohort
