// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/relay/relay_memory.h"

#include <unistd.h>

#include <algorithm>
#include <exception>

namespace cohort::relay_backend {
namespace {

// Smaller calls are many, and of many sizes.
constexpr size_t kLeastStretch = size_t{1} << 20;

size_t page_size() { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

size_t whole_pages(size_t bytes) {
  return (bytes + page_size() - 1) / page_size() * page_size();
}

}  // namespace

bool RelayMemory::Stretch::is_idle() const {
  try {
    return !last || last->query();
  } catch (const std::exception&) {
    return true;  // the device is of no use any more
  }
}

RelayMemory::RelayMemory(std::shared_ptr<RelayDriver> driver, Communicator& host)
    : driver_(std::move(driver)), host_(host), word_(make(sizeof(uint64_t))) {}

RelayMemory::~RelayMemory() {
  const bool idle = is_idle();
  for (auto& [lane, stretch] : stretches_) outgrown_.push_back(std::move(stretch));
  for (Stretch& stretch : outgrown_) drop(stretch);
  // Every lane may come to the word.
  if (idle)
    drop(word_);
  else
    new Tensor(word_.memory);
}

// Pages are pinned one by one: those of a stretch belong to nothing else.
RelayMemory::Stretch RelayMemory::make(size_t bytes) const {
  Stretch stretch{.memory = {}, .bytes = whole_pages(bytes), .last = nullptr};
  const auto room = static_cast<int64_t>(stretch.bytes + page_size());
  stretch.memory = host_.allocate({room}, at::kByte);
  const auto at = reinterpret_cast<uintptr_t>(stretch.memory.mutable_data_ptr());
  stretch.begin = reinterpret_cast<std::byte*>(whole_pages(at));
  stretch.mapped = driver_->pin(stretch.begin, stretch.bytes);
  return stretch;
}

void RelayMemory::drop(Stretch& stretch) const {
  if (stretch.is_idle())
    driver_->unpin(stretch.begin);
  else
    new Tensor(stretch.memory);  // it is never freed
}

void RelayMemory::drop_outgrown() {
  std::erase_if(outgrown_, [this](Stretch& stretch) {
    if (!stretch.is_idle()) return false;
    drop(stretch);
    return true;
  });
}

std::byte* RelayMemory::take(Lane lane, size_t bytes) {
  drop_outgrown();
  const auto found = stretches_.find(lane);
  if (found != stretches_.end()) {
    if (found->second.bytes >= bytes) return found->second.begin;
    outgrown_.push_back(std::move(found->second));
    stretches_.erase(found);
  }
  const auto made = stretches_.emplace(lane, make(std::max(bytes, kLeastStretch)));
  return made.first->second.begin;
}

void RelayMemory::leave(Lane lane) noexcept {
  try {
    stretches_.at(lane).last = driver_->so_far();
  } catch (const std::exception&) {
    // The device is of no use any more, and copies nothing.
  }
}

bool RelayMemory::is_idle() const {
  for (const auto& [lane, stretch] : stretches_)
    if (!stretch.is_idle()) return false;
  return std::ranges::all_of(outgrown_, &Stretch::is_idle);
}

}  // namespace cohort::relay_backend
