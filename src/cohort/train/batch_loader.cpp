// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/batch_loader.h"

#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/train/compute_threads.h"

namespace cohort {

BatchLoader::BatchLoader(Make make, const Options& options)
    : make_(std::move(make)), options_(options), thread_([this] { work(); }) {}

BatchLoader::~BatchLoader() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    orders_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

// An order that is dropped meanwhile lives on here alone, and nobody sees its batch.
void BatchLoader::work() {
  keep_to_one_thread();
  std::unique_lock lock(mutex_);
  while (!ends_) {
    const auto [key, order] = next();
    if (!order) {
      changed_.wait(lock);
      continue;
    }
    order->state = Order::State::kIsMade;
    lock.unlock();
    try {
      order->batch = make_(key.first, key.second);
    } catch (...) {
      order->error = std::current_exception();
    }
    lock.lock();
    order->state = Order::State::kDone;
    changed_.notify_all();
  }
}

std::pair<BatchLoader::Key, std::shared_ptr<BatchLoader::Order>> BatchLoader::next()
    const {
  const auto it = std::ranges::find_if(orders_, [](const auto& entry) {
    return entry.second->state == Order::State::kWaits;
  });
  if (it == orders_.end()) return {};
  return *it;
}

// What was made is of other steps, or of slices that are behind: it is not asked for
// any more.
std::shared_ptr<BatchLoader::Order> BatchLoader::order(int64_t step, int slice) {
  if (const auto it = orders_.find({step, slice}); it != orders_.end())
    return it->second;
  orders_.clear();
  for (int s = slice; s < options_.first_slice + options_.slices; ++s)
    orders_[{step, s}] = std::make_shared<Order>();
  return orders_.at({step, slice});
}

Batch BatchLoader::take(int64_t step, int slice) {
  COHORT_CHECK(
      slice >= options_.first_slice && slice < options_.first_slice + options_.slices,
      "slice ", slice, " of another rank");
  std::unique_lock lock(mutex_);
  const auto wanted = order(step, slice);
  changed_.notify_all();
  const auto is_done = [&] { return wanted->state == Order::State::kDone; };
  if (!changed_.wait_for(lock, options_.patience, is_done))
    throw DataError(text("[train] step ", step + 1, ": the samples of slice ", slice,
                         " are not there after ", options_.patience.count() / 1000,
                         " s"));
  orders_.erase({step, slice});
  if (step + 1 < options_.end) {
    orders_.try_emplace({step + 1, slice}, std::make_shared<Order>());
    changed_.notify_all();
  }
  if (wanted->error) std::rethrow_exception(wanted->error);
  return std::move(wanted->batch);
}

}  // namespace cohort
