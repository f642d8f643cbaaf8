// SPDX-License-Identifier: Apache-2.0
// Windows in memory of the host, for tests: ranks are threads of one process, and a
// lane is the thread itself, so that a wait of a lane blocks it.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "cohort/comm/local/local.h"
#include "cohort/comm/window/window_group.h"
#include "cohort/core/error.h"

namespace cohort::window_backend {

// Memory of all ranks that has not been given back.
class TestingWindows {
 public:
  void add(void* window) {
    change([&] { windows_.insert(window); });
  }
  void remove(void* window) {
    change([&] { EXPECT_EQ(windows_.erase(window), 1u); });
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return windows_.size();
  }

 private:
  void change(const std::function<void()>& work) {
    const std::lock_guard lock(mutex_);
    work();
  }

  std::mutex mutex_;
  std::set<void*> windows_;
};

class HostWindows final : public WindowDriver {
 public:
  explicit HostWindows(TestingWindows& windows, int seed = 0)
      : windows_(windows), random_(static_cast<unsigned>(seed)) {}

  at::Device device() const override { return at::kCPU; }
  std::string identity() const override { return gpu; }

  void* allocate(size_t bytes) override {
    void* const window = new std::byte[bytes];
    windows_.add(window);
    return window;
  }
  void release(void* window) override {
    windows_.remove(window);
    delete[] static_cast<std::byte*>(window);
  }
  std::string invitation_to(void* window) override {
    return {reinterpret_cast<const char*>(&window), sizeof(window)};
  }
  void* open(const std::string& invitation) override {
    if (!why_not_open.empty()) throw ConfigError(why_not_open);
    void* window = nullptr;
    std::memcpy(&window, invitation.data(), sizeof(window));
    ++opened;
    return window;
  }
  void close(void*) override { --opened; }

  uint64_t* map(uint64_t* pages, size_t) override { return ++mapped, pages; }
  void unmap(uint64_t*) override { --mapped; }

  void write(uint64_t* word, uint64_t value) override {
    dawdle();
    std::atomic_ref(*word).store(value, std::memory_order_release);
  }
  void wait(uint64_t* word, uint64_t least) override {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    const auto reached = [&] {
      const uint64_t is = std::atomic_ref(*word).load(std::memory_order_acquire);
      return static_cast<int64_t>(is - least) >= 0;
    };
    while (!reached()) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "a lane waits forever";
        return;
      }
      std::this_thread::yield();
    }
    dawdle();
  }

  std::string gpu = "the host", why_not_open;
  std::atomic<int> opened = 0, mapped = 0;

 private:
  // Ranks do not keep in step.
  void dawdle() {
    if (random_() % 50 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % 100));
  }

  TestingWindows& windows_;
  std::minstd_rand random_;
};

using WindowBody = std::function<void(Communicator& comm, WindowGroup& group)>;

// Runs `body` on every rank, with a communicator of the host to compare with. Halves
// are so small that most calls take several rounds.
inline void run_windows(int size, TestingWindows& windows, const WindowBody& body) {
  const auto patience = std::chrono::seconds(20);
  auto hosts = make_local(size, patience), others = make_local(size, patience);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      WindowGroup group(std::make_shared<HostWindows>(windows, rank),
                        std::move(hosts[rank]), {.for_all = 256, .for_one = 64},
                        {.timeout = patience});
      body(*others[rank], group);
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace cohort::window_backend
