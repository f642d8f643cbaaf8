// SPDX-License-Identifier: Apache-2.0
// Windows in memory of the host, for tests: ranks are threads of one process, and a
// lane is the thread itself, so that a wait of a lane blocks it.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
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

  void give(std::span<uint64_t* const> words) override {
    for (uint64_t* const word : words)
      in_lane([this, word] {
        dawdle();
        std::atomic_ref(*word).store(1, std::memory_order_release);
      });
  }
  void take(std::span<uint64_t* const> words) override {
    for (uint64_t* const word : words)
      in_lane([this, word] {
        await(*word);
        dawdle();
        std::atomic_ref(*word).store(0, std::memory_order_release);
        dawdle();
      });
  }

  bool is_captured() const override { return captured_ != nullptr; }
  std::future<void> settled() override {
    std::promise<void> done;  // a lane is its thread
    done.set_value();
    return done.get_future();
  }

  // What lanes are given while `calls` runs, to be run later, as often as one likes.
  using Graph = std::vector<std::function<void()>>;
  Graph capture(const std::function<void()>& calls) {
    Graph graph;
    captured_ = &graph;
    calls();
    captured_ = nullptr;
    return graph;
  }
  void in_lane(const std::function<void()>& work) {
    captured_ ? captured_->push_back(work) : work();
  }
  static void replay(const Graph& graph) {
    for (const auto& work : graph) work();
  }

  std::string gpu = "the host", why_not_open;
  std::atomic<int> opened = 0, mapped = 0;

 private:
  static void await(uint64_t& word) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::atomic_ref(word).load(std::memory_order_acquire) == 0) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "a lane waits forever";
        return;
      }
      std::this_thread::yield();
    }
  }

  // Ranks do not keep in step.
  void dawdle() {
    if (random_() % 50 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % 100));
  }

  TestingWindows& windows_;
  std::minstd_rand random_;
  Graph* captured_ = nullptr;
};

using WindowBody =
    std::function<void(Communicator& comm, WindowGroup& group, HostWindows& driver)>;

// Runs `body` on every rank, with a communicator of the host to compare with. Halves
// are so small that most calls take several rounds.
inline void run_windows_and_drivers(int size, TestingWindows& windows,
                                    const WindowBody& body) {
  const auto patience = std::chrono::seconds(20);
  auto hosts = make_local(size, patience), others = make_local(size, patience);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto driver = std::make_shared<HostWindows>(windows, rank);
      WindowGroup group(driver, std::move(hosts[rank]), {.for_all = 256, .for_one = 64},
                        {.timeout = patience});
      body(*others[rank], group, *driver);
    });
  }
  for (auto& thread : threads) thread.join();
}

inline void run_windows(
    int size, TestingWindows& windows,
    const std::function<void(Communicator& comm, WindowGroup& group)>& body) {
  run_windows_and_drivers(
      size, windows,
      [&](Communicator& comm, WindowGroup& group, HostWindows&) { body(comm, group); });
}

}  // namespace cohort::window_backend
