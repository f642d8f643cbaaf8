// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/history_record.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "cohort/core/error.h"
#include "cohort/core/hash.h"

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian");

namespace cohort {
namespace {

// Kinds, in the order of the variant; part of the format.
enum RecordKind : uint16_t { kRun = 1, kWorld, kStep, kRollback, kEnd };
constexpr uint32_t kHasLoss = 1, kHasHash = 2, kAfterwards = 4, kDamaged = 8,
                   kHasDrawn = 16, kHasPiecesHash = 32;  // flags

constexpr size_t kHeadBytes = 8;  // kind, length, hash of both
constexpr size_t kHashBytes = 8;
constexpr size_t kLongestText = 1000;
// Limits steps and samples, so far below the largest int64_t that sums cannot overflow.
constexpr int64_t kMostNumber = int64_t{1} << 48;

class BytesOut {
 public:
  template <typename T>
  BytesOut& put(T value) {
    static_assert(std::is_arithmetic_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  BytesOut& put(std::string_view value) {
    value = value.substr(0, kLongestText);
    put(static_cast<uint16_t>(value.size()));
    bytes_.append(value);
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reading past the end gives zeros and says so in good().
class BytesIn {
 public:
  explicit BytesIn(std::string_view bytes) : bytes_(bytes) {}
  template <typename T>
  void get(T& value) {
    const std::string_view part = take(sizeof value);
    if (part.size() == sizeof value) std::memcpy(&value, part.data(), sizeof value);
  }
  void get(int64_t& value) {
    get<int64_t>(value);
    good_ = good_ && value <= kMostNumber && value >= -kMostNumber;
  }
  void get(std::string& value) {
    uint16_t length = 0;
    get(length);
    value = take(length);
  }
  // Read to the last byte and not beyond.
  bool exact() const { return good_ && bytes_.empty(); }

 private:
  std::string_view take(size_t count) {
    good_ = good_ && count <= bytes_.size();
    const std::string_view part = bytes_.substr(0, good_ ? count : 0);
    bytes_.remove_prefix(part.size());
    return part;
  }

  std::string_view bytes_;
  bool good_ = true;
};

// Each kind has a flag of its own: a program that does not know one sees no hash.
uint32_t hash_flag(const std::optional<RecordedHash>& hash) {
  if (!hash) return 0;
  return hash->kind == HashKind::kPieces ? kHasPiecesHash : kHasHash;
}

uint64_t hash_bits(const std::optional<RecordedHash>& hash) {
  return hash ? hash->value : 0;
}

std::optional<RecordedHash> recorded_hash(uint64_t value, uint32_t flags) {
  if (flags & kHasPiecesHash) return RecordedHash{value, HashKind::kPieces};
  if (flags & kHasHash) return RecordedHash{value, HashKind::kStream};
  return std::nullopt;
}

std::string body(const HistoryRun& run) {
  return BytesOut()
      .put(run.seed)
      .put(run.samples)
      .put(run.batch)
      .put(run.steps_per_epoch)
      .put(run.base)
      .put(run.slices)
      .put(static_cast<uint32_t>(run.exact))
      .put(std::string_view(run.hash_of))
      .take();
}

std::string body(const HistoryWorld& world) {
  return BytesOut()
      .put(world.started_us)
      .put(world.generation)
      .put(world.ranks)
      .put(world.committed)
      .put(std::string_view(world.layout))
      .take();
}

std::string body(const HistoryStep& step) {
  const uint32_t flags = (step.loss ? kHasLoss : 0) | hash_flag(step.hash) |
                         (step.afterwards ? kAfterwards : 0) |
                         (step.drawn ? kHasDrawn : 0);
  BytesOut out;
  out.put(step.step)
      .put(step.first)
      .put(std::bit_cast<uint64_t>(step.loss.value_or(0)))
      .put(hash_bits(step.hash))
      .put(step.generation)
      .put(step.epoch)
      .put(step.count)
      .put(flags);
  if (step.drawn) out.put(step.drawn->sum).put(step.drawn->count);
  return out.take();
}

std::string body(const HistoryRollback& rollback) {
  return BytesOut()
      .put(rollback.from)
      .put(rollback.to)
      .put(rollback.damaged ? kDamaged : 0u)
      .put(std::string_view(rollback.why))
      .take();
}

std::string body(const HistoryEnd& end) {
  return BytesOut()
      .put(end.step)
      .put(end.signal)
      .put(hash_flag(end.weights_hash))
      .put(hash_bits(end.weights_hash))
      .take();
}

void read(BytesIn& in, HistoryRun& run) {
  uint32_t exact = 0;
  in.get(run.seed);
  in.get(run.samples);
  in.get(run.batch);
  in.get(run.steps_per_epoch);
  in.get(run.base);
  in.get(run.slices);
  in.get(exact);
  in.get(run.hash_of);
  run.exact = exact != 0;
}

void read(BytesIn& in, HistoryWorld& world) {
  uint64_t started_us = 0;
  in.get(started_us);
  world.started_us = static_cast<int64_t>(started_us);
  in.get(world.generation);
  in.get(world.ranks);
  in.get(world.committed);
  in.get(world.layout);
}

void read(BytesIn& in, HistoryStep& step) {
  uint64_t loss = 0, hash = 0;
  uint32_t flags = 0;
  in.get(step.step);
  in.get(step.first);
  in.get(loss);
  in.get(hash);
  in.get(step.generation);
  in.get(step.epoch);
  in.get(step.count);
  in.get(flags);
  if (flags & kHasLoss) step.loss = std::bit_cast<double>(loss);
  step.hash = recorded_hash(hash, flags);
  step.afterwards = (flags & kAfterwards) != 0;
  if (!(flags & kHasDrawn)) return;
  step.drawn.emplace();
  in.get(step.drawn->sum);
  in.get(step.drawn->count);
}

void read(BytesIn& in, HistoryRollback& rollback) {
  in.get(rollback.from);
  in.get(rollback.to);
  uint32_t flags = 0;
  in.get(flags);
  rollback.damaged = (flags & kDamaged) != 0;
  in.get(rollback.why);
}

void read(BytesIn& in, HistoryEnd& end) {
  uint32_t flags = 0;
  uint64_t hash = 0;
  in.get(end.step);
  in.get(end.signal);
  in.get(flags);
  in.get(hash);
  end.weights_hash = recorded_hash(hash, flags);
}

template <typename T>
bool decode_as(std::string_view bytes, HistoryRecord& record) {
  BytesIn in(bytes);
  T value;
  read(in, value);
  record = std::move(value);
  return in.exact();
}

// False: no such kind, or a body that is not of its form.
bool decode(uint16_t kind, std::string_view bytes, HistoryRecord& record) {
  switch (kind) {
    case kRun:
      return decode_as<HistoryRun>(bytes, record);
    case kWorld:
      return decode_as<HistoryWorld>(bytes, record);
    case kStep:
      return decode_as<HistoryStep>(bytes, record);
    case kRollback:
      return decode_as<HistoryRollback>(bytes, record);
    case kEnd:
      return decode_as<HistoryEnd>(bytes, record);
    default:
      return false;
  }
}

// The half of a hash that guards kind and length: a flipped length must not look like
// a record that was cut short.
uint32_t head_hash(std::string_view kind_and_length) {
  return static_cast<uint32_t>(hash64(kind_and_length));
}

template <typename T>
T value_at(std::string_view bytes, size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace

std::string_view hash_kind_name(HashKind kind) {
  return kind == HashKind::kPieces ? "pieces" : "stream";
}

std::string facts_of(const HistoryRun& run) {
  return text("seed ", run.seed, ", ", run.samples, " samples, batch ", run.batch, ", ",
              run.slices, " slices", run.exact ? ", exact" : "");
}

std::string history_bytes(const HistoryRecord& record, uint64_t previous) {
  const std::string content = std::visit([](const auto& r) { return body(r); }, record);
  std::string bytes = BytesOut()
                          .put(static_cast<uint16_t>(record.index() + 1))
                          .put(static_cast<uint16_t>(content.size()))
                          .take();
  bytes += BytesOut().put(head_hash(bytes)).take();
  bytes += content;
  return bytes + BytesOut().put(hash64(bytes, previous)).take();
}

HistoryReader::HistoryReader(std::string_view bytes, const std::string& name)
    : bytes_(bytes) {
  const size_t length = std::min(bytes.size(), kHistoryMagic.size());
  if (length == 0)
    throw DataError(text("[elastic.history] ", name, ": is empty, so no history"));
  if (bytes.substr(0, length) != kHistoryMagic.substr(0, length))
    throw DataError(text("[elastic.history] ", name,
                         ": is no history; one begins with ", kHistoryMagic));
  if (length < kHistoryMagic.size())
    torn_bytes_ = static_cast<int64_t>(length);
  else
    end_ = static_cast<int64_t>(length);
  at_ = length;
}

bool HistoryReader::ends_torn(std::string_view rest) const {
  if (rest.size() < kHeadBytes) return true;
  // A power cut may leave the length of a file and not its bytes.
  if (rest.find_first_not_of('\0') == std::string_view::npos) return true;
  if (value_at<uint32_t>(rest, 4) != head_hash(rest.substr(0, 4))) return false;
  return rest.size() < kHeadBytes + value_at<uint16_t>(rest, 2) + kHashBytes;
}

// Nothing after it can be found.
std::optional<HistoryReader::Item> HistoryReader::damaged(const std::string& what) {
  Item item{index_++, static_cast<int64_t>(at_), {}, what};
  at_ = bytes_.size();
  return item;
}

std::optional<HistoryReader::Item> HistoryReader::next() {
  const std::string_view rest = bytes_.substr(at_);
  if (rest.empty()) return std::nullopt;
  if (ends_torn(rest)) {
    torn_bytes_ = static_cast<int64_t>(rest.size());
    at_ = bytes_.size();
    return std::nullopt;
  }
  if (value_at<uint32_t>(rest, 4) != head_hash(rest.substr(0, 4)))
    return damaged(text("its head has another hash; the ", rest.size(),
                        " bytes from here on cannot be read"));
  const size_t length = kHeadBytes + value_at<uint16_t>(rest, 2);
  const auto hash = value_at<uint64_t>(rest, length);
  Item item{index_++, static_cast<int64_t>(at_), {}, ""};
  const uint64_t found = hash64(rest.substr(0, length), last_hash_);
  if (found != hash)
    item.damage = text("its hash is ", hex16(found), "; expected ", hex16(hash),
                       " (it was altered, or the record before it is gone)");
  else if (!decode(value_at<uint16_t>(rest, 0),
                   rest.substr(kHeadBytes, length - kHeadBytes), item.record))
    item.damage = text("kind ", value_at<uint16_t>(rest, 0), " with ",
                       length - kHeadBytes, " bytes; this program knows kinds 1 to 5");
  at_ += length + kHashBytes;
  end_ = static_cast<int64_t>(at_);
  last_hash_ = hash;
  return item;
}

}  // namespace cohort
