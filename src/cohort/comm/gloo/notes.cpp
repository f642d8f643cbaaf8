// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/gloo/notes.h"

#include <thread>
#include <tuple>

#include "cohort/comm/dtype.h"
#include "cohort/core/error.h"
#include "cohort/core/record.h"

namespace cohort::gloo_backend {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

// How long to wait for the other survivors to report themselves, and, when all but
// one have, for that one.
constexpr milliseconds kOthers{300};
constexpr milliseconds kLastOne{60};
constexpr milliseconds kPause{4};
constexpr milliseconds kRead{100};
constexpr size_t kMaxNames = 8;

double seconds_since(SteadyClock::time_point begin) {
  const auto ms = std::chrono::duration_cast<milliseconds>(SteadyClock::now() - begin);
  return static_cast<double>(ms.count() / 100) / 10.0;
}

// Where a rank was when its group broke.
struct RankNote {
  std::string at;
  double seconds = 0;  // for how long
};

auto record_fields(Alike<RankNote> auto& note) {
  return std::tie(note.at, note.seconds);
}

}  // namespace

std::string describe(const Record& record) {
  std::string inner;
  if (const char* name = dtype_name(record.dtype)) inner += name;
  if (record.numel >= 0) inner += text(", ", record.numel);
  if (record.reduce != nullptr) inner += text(", ", record.reduce);
  if (record.root >= 0) inner += text(", root ", record.root);
  return text(record.op, inner.empty() ? "" : "(", inner, inner.empty() ? "" : ")",
              " #", record.sequence);
}

uint32_t fingerprint(const Record& record) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  const auto mix = [&](uint64_t value) { hash = (hash ^ value) * 1099511628211u; };
  for (const char* c = record.op; *c != 0; ++c) mix(static_cast<unsigned char>(*c));
  for (const char* c = record.reduce; c != nullptr && *c != 0; ++c) {
    mix(static_cast<unsigned char>(*c));
  }
  mix(static_cast<uint64_t>(record.dtype));
  mix(static_cast<uint64_t>(record.numel));
  mix(static_cast<uint64_t>(record.root));
  const uint32_t folded = static_cast<uint32_t>(hash >> 32 ^ hash >> 48) & 0xffff;
  return static_cast<uint32_t>(record.sequence) << 16 | folded;
}

std::string describe_missing(const std::vector<int>& ranks) {
  std::string names = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size() && i < kMaxNames; ++i) {
    names += text(i == 0 ? "" : ", ", ranks[i]);
  }
  if (ranks.size() > kMaxNames)
    names += text(" and ", ranks.size() - kMaxNames, " more");
  return names + (ranks.size() == 1 ? " is missing" : " are missing");
}

Notes::Notes(Open open, std::string prefix, int rank, int size)
    : open_(std::move(open)), prefix_(std::move(prefix)), rank_(rank), size_(size) {}

Store& Notes::store() {
  if (!store_) {
    if (!open_) throw CommError("[comm.gloo] the store was lost before");
    auto open = std::move(open_);
    open_ = nullptr;  // one attempt only
    store_ = open();
  }
  return *store_;
}

void Notes::publish_abort(const std::string& reason) noexcept {
  try {
    if (store().add(prefix_ + "abort_claim", 1) > 1) return;
    store().set(prefix_ + "abort", text("aborted by rank ", rank_, ": ", reason));
  } catch (const std::exception&) {
  }
}

void Notes::publish_failure(const Record& record) noexcept {
  if (published_) return;
  published_ = true;
  try {
    store().set(text(prefix_, "at/", rank_),
                to_record(RankNote{describe(record), seconds_since(record.started)}));
    store().add(prefix_ + "count", 1);
  } catch (const std::exception&) {
  }
}

bool Notes::find_abort(std::string& cause) {
  if (!store().has(prefix_ + "abort")) return false;
  cause = store().get(prefix_ + "abort", kRead);
  return true;
}

// Until all ranks have reported, or all but one that then gets a little longer.
void Notes::await_others() {
  const auto deadline = SteadyClock::now() + kOthers;
  auto last_one = deadline;
  while (SteadyClock::now() < std::min(deadline, last_one)) {
    const int64_t count = store().add(prefix_ + "count", 0);
    if (count >= size_ || store().has(prefix_ + "abort")) return;
    if (count == size_ - 1 && last_one == deadline)
      last_one = SteadyClock::now() + kLastOne;
    std::this_thread::sleep_for(kPause);
  }
}

std::string Notes::compare(const Record& record) {
  std::vector<int> missing;
  std::string elsewhere;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    if (!store().has(text(prefix_, "at/", rank))) {
      missing.push_back(rank);
      continue;
    }
    const auto note =
        try_read_record<RankNote>(store().get(text(prefix_, "at/", rank), kRead));
    if (!note || note->at == describe(record) || elsewhere.size() > 200) continue;
    elsewhere += text(elsewhere.empty() ? "" : ", ", "rank ", rank, " is at ", note->at,
                      " for ", note->seconds, " s");
  }
  if (missing.empty()) return elsewhere;
  return text(describe_missing(missing), elsewhere.empty() ? "" : "; ", elsewhere);
}

std::string Notes::find_cause(const Record& record) noexcept {
  std::string cause;
  try {
    publish_failure(record);
    if (find_abort(cause)) return cause;
    await_others();
    if (!find_abort(cause)) cause = compare(record);
  } catch (const std::exception&) {
  }
  return cause;
}

}  // namespace cohort::gloo_backend
