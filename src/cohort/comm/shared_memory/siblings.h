// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace cohort::shared_memory {

class SharedGroup;

// The groups of one rank that come from one world, so that a wait in one can move the
// others: nobody else does, for there is no thread behind a rank.
//
// A thread moves only those groups that it was the last to use. Another thread that
// takes a group over waits until the thread that moves it is done.
//
// Thread safety: any thread may call anything.
class Siblings {
 public:
  void join(SharedGroup& group);
  void leave(SharedGroup& group);

  // Every use of a group begins with it: from now on its calls are this thread's. A
  // load and a comparison where they are already.
  void claim(std::atomic<std::thread::id>& owner) {
    const auto me = std::this_thread::get_id();
    if (owner.load(std::memory_order_relaxed) != me) take_over(owner, me);
  }

  // So many ask that no joint work begins.
  void hold_joint_work(int change) {
    holds_.fetch_add(change, std::memory_order_relaxed);
  }
  bool holds_joint_work() const { return holds_.load(std::memory_order_relaxed) > 0; }

  // How many groups have something outstanding: told by each as it begins or ends. A
  // group that was always alone has no other rank that might count at the same time.
  void count(int change) {
    constexpr auto kRelaxed = std::memory_order_relaxed;
    if (alone_.load(kRelaxed)) {
      outstanding_.store(outstanding_.load(kRelaxed) + change, kRelaxed);
    } else {
      outstanding_.fetch_add(change, kRelaxed);
    }
  }
  // Whether a group other than one that counts `own` times may have something.
  bool others(int own) const {
    return outstanding_.load(std::memory_order_relaxed) > own;
  }

  // Calls `visit` for the groups of this thread but `self`. False: another thread is
  // doing so for its own, and none was visited.
  template <typename Visit>
  bool visit(const SharedGroup& self, const Visit& visit) {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return false;
    if (visiting_) return true;  // from within a visit
    visiting_ = true;
    // By number: a visit may end in user code, which may make or drop a group.
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (groups_[i] != &self && is_mine(*groups_[i])) visit(*groups_[i]);
    }
    visiting_ = false;
    return true;
  }

 private:
  void take_over(std::atomic<std::thread::id>& owner, std::thread::id me);
  static bool is_mine(const SharedGroup& group);

  std::atomic<int> outstanding_ = 0;
  std::atomic<bool> alone_ = true;
  std::atomic<int> holds_ = 0;
  std::recursive_mutex mutex_;  // guards what follows, and every owner that changes
  bool visiting_ = false;
  std::vector<SharedGroup*> groups_;
};

}  // namespace cohort::shared_memory
