// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/snapshots.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "cohort/core/error.h"
#include "cohort/core/parse.h"
#include "cohort/core/unique_fd.h"
#include "cohort/step/piece_overlap.h"

namespace cohort {
namespace {

constexpr int64_t kWarmBytes = 64 << 20;  // at once, between two looks at the clock
constexpr std::string_view kSnapshotPrefix = "snapshot.";

std::vector<std::shared_ptr<SnapshotPages>> map_all(std::vector<HeldPages> kept) {
  std::vector<std::shared_ptr<SnapshotPages>> pages;
  for (auto& [name, fd] : kept)
    if (auto mapped = SnapshotPages::map(fd);
        mapped && name.starts_with(kSnapshotPrefix))
      pages.push_back(std::move(mapped));
  return pages;
}

bool fits(const StatePiece& have, const StatePiece& want) {
  return have.tensor.spec.shape == want.tensor.spec.shape &&
         have.tensor.order == want.tensor.order &&
         have.data.scalar_type() == want.data.scalar_type();
}

// What nobody reads need not be looked at.
bool is_wanted(std::span<const StatePiece> have, std::span<const StatePiece> want) {
  std::unordered_multimap<std::string_view, const TensorSpec*> by_name;
  for (const auto& piece : want)
    by_name.emplace(piece.tensor.spec.name, &piece.tensor.spec);
  return std::ranges::any_of(have, [&](const StatePiece& piece) {
    const TensorSpec& spec = piece.tensor.spec;
    const auto [first, last] = by_name.equal_range(spec.name);
    return std::any_of(first, last, [&](const auto& one) {
      return spec.shape == one.second->shape && overlap(spec, *one.second);
    });
  });
}

}  // namespace

SnapshotSet::SnapshotSet(std::vector<std::shared_ptr<SnapshotPages>> pages) {
  for (auto& one : pages) {
    const auto title = one->title();
    if (!title) continue;
    auto found = std::find_if(states_.begin(), states_.end(), [&](const auto& state) {
      return state.first.same_state(*title);
    });
    if (found == states_.end()) found = states_.insert(found, {*title, {}});
    found->second[title->rank] = std::move(one);
  }
  std::sort(states_.begin(), states_.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.step, a.first.generation) >
           std::pair(b.first.step, b.first.generation);
  });
}

std::vector<SnapshotTitle> SnapshotSet::whole() const {
  std::vector<SnapshotTitle> titles;
  for (const auto& [title, parts] : states_)
    if (static_cast<int>(parts.size()) == title.world) titles.push_back(title);
  return titles;
}

const SnapshotSet::Parts* SnapshotSet::find(const SnapshotTitle& title) const {
  for (const auto& [other, parts] : states_)
    if (other.same_state(title)) return &parts;
  return nullptr;
}

RunState SnapshotSet::run(const SnapshotTitle& title) const {
  const Parts* const parts = find(title);
  COHORT_CHECK(parts, "no snapshot of step ", title.step);
  return parts->begin()->second->run();
}

std::string SnapshotSet::fill(const SnapshotTitle& title,
                              std::span<const StatePiece> pieces) const {
  const c10::NoGradGuard no_grad;
  const Parts* const parts = find(title);
  if (!parts) return text("[train.snapshot] step ", title.step, " is not kept");
  std::unordered_map<std::string, std::vector<StatePiece>> have;
  for (const auto& [rank, pages] : *parts) {
    auto there = pages->pieces();
    if (!is_wanted(there, pieces)) continue;
    if (auto damage = pages->damage(); !damage.empty()) return damage;
    for (auto& piece : there) have[piece.tensor.spec.name].push_back(std::move(piece));
  }
  for (const auto& piece : pieces) {
    const TensorSpec& want = piece.tensor.spec;
    int64_t filled = 0;
    for (const auto& source : have[want.name]) {
      if (fits(source, piece)) filled += copy_overlap(source, piece);
    }
    if (filled != want.end - want.begin)
      return text("[train.snapshot] step ", title.step, " has ", filled, " of ",
                  want.end - want.begin, " elements of ", want.name);
  }
  return "";
}

Snapshots::~Snapshots() { stop_warming(); }

void Snapshots::stop_warming() {
  enough_ = true;
  if (warming_.joinable()) warming_.join();
  enough_ = false;
}

std::string Snapshots::name(int slot) const {
  return text(kSnapshotPrefix, who_.rank, ".", slot);
}

SnapshotSet Snapshots::found() const {
  return SnapshotSet(holder_ ? map_all(holder_->held())
                             : std::vector<std::shared_ptr<SnapshotPages>>{});
}

void Snapshots::begin(const SnapshotTitle& who, std::span<const StatePiece> pieces) {
  stop_warming();
  const bool moved = who.rank != who_.rank;
  who_ = who;
  plan_ = plan_snapshot(pieces);
  last_.reset();
  tidied_ = false;
  if (moved && holder_) adopt();
  // Before this world takes one, so all ranks see the same.
  if (holder_) {
    const auto whole = found().whole();
    safe_ = whole.empty() ? std::nullopt : std::optional(whole.front());
  }
}

// What the rank of this number left behind is this rank's to go on with.
void Snapshots::adopt() {
  std::fill(slots_.begin(), slots_.end(), nullptr);
  for (auto& [name, fd] : holder_->held()) {
    auto pages = SnapshotPages::map(fd);
    for (int slot = 0; slot < static_cast<int>(slots_.size()); ++slot)
      if (pages && name == this->name(slot)) slots_[slot] = std::move(pages);
  }
}

int64_t Snapshots::wanted_bytes() const {
  return plan_.total_bytes() * static_cast<int64_t>(slots_.size());
}

int64_t Snapshots::held_bytes() const {
  int64_t bytes = 0;
  for (const auto& pages : slots_) bytes += pages ? pages->bytes() : 0;
  return bytes;
}

void Snapshots::renew(int slot) {
  stop_warming();
  slots_[slot] = nullptr;
  slots_[slot] = SnapshotPages::create(plan_.total_bytes());
  if (holder_) holder_->hold(name(slot), slots_[slot]->fd());
}

// Ranks that this world no longer has: what they held is in a newer snapshot now.
void Snapshots::let_go_of_lost_ranks() {
  if (tidied_ || !holder_ || who_.rank != 0) return;
  tidied_ = true;
  for (const auto& pages : holder_->held()) {
    const UniqueFd had(pages.fd);
    if (!pages.name.starts_with(kSnapshotPrefix)) continue;
    const std::string rank = split(pages.name.substr(kSnapshotPrefix.size()), '.')[0];
    if (try_parse_int(rank).value_or(0) < who_.world) continue;
    const UniqueFd nothing(::memfd_create("cohort-nothing", MFD_CLOEXEC));
    struct stat info {};
    if (::fstat(had.get(), &info) == 0 && info.st_size > 0)
      holder_->hold(pages.name, nothing.get());
  }
}

void Snapshots::warm_up() {
  for (int slot = 0; slot < static_cast<int>(slots_.size()); ++slot)
    if (!slots_[slot]) renew(slot);
  // Not as shared pointers: a slot that somebody else holds counts as being read.
  std::vector<SnapshotPages*> all;
  for (const auto& pages : slots_) all.push_back(pages.get());
  warming_ = std::thread([this, all] {
    for (auto* const pages : all)
      for (int64_t at = 0; at < pages->bytes() && !enough_; at += kWarmBytes)
        pages->warm(at, kWarmBytes);
  });
}

// The oldest, or one that is not complete anyway.
int Snapshots::choose() const {
  int best = -1;
  int64_t oldest = std::numeric_limits<int64_t>::max();
  for (int slot = 0; slot < static_cast<int>(slots_.size()); ++slot) {
    if (slots_[slot].use_count() > 1) continue;
    const auto title = slots_[slot] ? slots_[slot]->title() : std::nullopt;
    if (title && safe_ && title->same_state(*safe_) && slots_.size() > 1) continue;
    if (title && title->step == pinned_ && slots_.size() > 2) continue;
    const int64_t age = title ? title->step : -1;
    if (age >= oldest) continue;
    oldest = age;
    best = slot;
  }
  return best;
}

void Snapshots::forget_after(int64_t step) {
  for (const auto& slot : slots_)
    if (slot && slot->title() && slot->title()->step > step) slot->clear();
  if (safe_ && safe_->step > step) safe_.reset();
  if (last_ && last_->step > step) last_.reset();
}

std::shared_ptr<SnapshotPages> Snapshots::take(const RunState& run,
                                               std::span<const StatePiece> pieces) {
  if (last_) {
    safe_ = last_;
    let_go_of_lost_ranks();
  }
  const int slot = choose();
  if (slot < 0) return nullptr;
  SnapshotTitle title = who_;
  title.step = run.step;
  if (!slots_[slot] || !slots_[slot]->write(title, run, plan_, pieces)) {
    renew(slot);
    const bool fits = slots_[slot]->write(title, run, plan_, pieces);
    COHORT_CHECK(fits, "a snapshot of ", plan_.data_bytes, " bytes");
  }
  last_ = title;
  return slots_[slot];
}

}  // namespace cohort
