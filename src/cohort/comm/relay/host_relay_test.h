// SPDX-License-Identifier: Apache-2.0
// A device for relays that is the host, for tests: ranks are threads of one process,
// and a lane is a queue with a thread of its own, or the rank's thread itself.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "cohort/comm/local/local.h"
#include "cohort/comm/relay/relay_group.h"
#include "cohort/core/error.h"

namespace cohort::relay_backend {

// Work that runs in its order. What is left when it ends is run first.
class HostQueue {
 public:
  HostQueue() : thread_([this] { run(); }) {}
  ~HostQueue() {
    add(nullptr);
    thread_.join();
  }

  void add(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
  }
  // What its work uses, although the rank that gave it has failed and gone on.
  void keep(const Tensor& used) {
    const std::lock_guard lock(mutex_);
    kept_.push_back(used);
  }

 private:
  void run() {
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !work_.empty(); });
      const auto work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      if (!work) return;
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::vector<Tensor> kept_;
  std::thread thread_;
};

class HostFlight final : public device_comm::Flight {
 public:
  bool query() override { return over; }

  std::atomic<bool> over = false;
};

class HostRelay final : public RelayDriver {
 public:
  using Lane = device_comm::Stream;

  void* pin(void* pages, size_t) override {
    if (!why_not_pinned.empty()) throw ConfigError(why_not_pinned);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pages) % 4096, 0u);
    EXPECT_TRUE(pinned_.insert(pages).second);
    return pages;
  }
  void unpin(void* pages) noexcept override { EXPECT_EQ(pinned_.erase(pages), 1u); }

  void to_host(void* to, const void* from, size_t bytes) override {
    copy(to, from, bytes);
  }
  void to_device(void* to, const void* from, size_t bytes) override {
    copy(to, from, bytes);
  }
  void tell(std::function<void()> told) override { in_lane(std::move(told)); }
  void await(uint64_t* word, uint64_t least) override {
    in_lane([this, word, least] { wait_for(*word, least); });
  }
  std::shared_ptr<device_comm::Flight> so_far() override {
    auto flight = std::make_shared<HostFlight>();
    in_lane([flight] { flight->over = true; });
    return flight;
  }

  // The lane with that number from now on; without it the rank's thread itself.
  Lane enter(size_t number) {
    current_ = &lanes_[number];
    return current_;
  }
  void in_lane(std::function<void()> work) {
    current_ ? current_->add(std::move(work)) : work();
  }
  // Returns when the current lane has done all that it was given.
  void settle() {
    const auto end = so_far();
    while (!end->query()) std::this_thread::yield();
  }

  size_t pinned() const { return pinned_.size(); }

  std::string why_not_pinned;

 private:
  void copy(void* to, const void* from, size_t bytes) {
    in_lane([to, from, bytes] { std::memcpy(to, from, bytes); });
  }

  static void wait_for(uint64_t& word, uint64_t least) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    const auto is_less = [&] {
      const uint64_t value = std::atomic_ref(word).load(std::memory_order_acquire);
      return static_cast<int64_t>(value - least) < 0;  // as CUDA compares
    };
    while (is_less()) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "a lane waits forever";
        return;
      }
      std::this_thread::yield();
    }
  }

  std::set<void*> pinned_;
  std::map<size_t, HostQueue> lanes_;
  HostQueue* current_ = nullptr;
};

using RelayBody =
    std::function<void(Communicator& comm, RelayGroup& group, HostRelay& driver)>;

// Runs `body` on every rank, with a communicator of the host to compare with. All that
// was pinned is given back.
inline void run_relays(int size, const RelayBody& body,
                       std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  auto hosts = make_local(size, timeout);
  auto others = make_local(size, std::chrono::seconds(20));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto driver = std::make_shared<HostRelay>();
      {
        RelayGroup group(driver, std::move(hosts[rank]), {.timeout = timeout});
        body(*others[rank], group, *driver);
      }
      EXPECT_EQ(driver->pinned(), 0u);
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace cohort::relay_backend
