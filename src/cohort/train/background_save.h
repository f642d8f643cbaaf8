// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "cohort/checkpoint/save.h"

namespace cohort {

// How a save ended.
struct SaveOutcome {
  int64_t step = 0;
  std::string path;     // the checkpoint that is there now; empty if nothing came of it
  std::string failure;  // what the disk said
  std::string remark;   // as in SaveReport
};

// What a save gives or throws. One that lost a peer was merely cut off: it has neither
// a path nor a failure.
SaveOutcome outcome_of(int64_t step, const std::function<SaveReport()>& save);

// Runs saves beside training, one at a time. Use it from one thread.
class BackgroundSave {
 public:
  BackgroundSave() = default;
  ~BackgroundSave() { join(); }
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  bool busy() const { return busy_.load(); }
  // Only while it is not busy.
  void start(int64_t step, std::function<SaveReport()> save);
  // How the last save ended, once it has, and only once.
  std::optional<SaveOutcome> take_outcome();
  // Until it has ended; any thread may wait. A caller in a hurry breaks the group its
  // exchange is over.
  void wait() { busy_.wait(true); }

 private:
  void join();

  std::thread thread_;
  std::atomic<bool> busy_{false};
  std::optional<SaveOutcome> outcome_;  // the thread's while it is busy
};

}  // namespace cohort
