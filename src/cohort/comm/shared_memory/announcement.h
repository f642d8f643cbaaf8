// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "cohort/comm/shared_memory/control_block.h"
#include "cohort/comm/shared_memory/pause.h"

namespace cohort::shared_memory {

// A rank whose next sign another sleeps for.
struct Awaited {
  Status* status;
  int sleeper;  // its rank in that group
  bool operator==(const Awaited&) const = default;
};

// While it lives, all that is awaited rings the sleeper's bell with every sign.
class Announcement {
 public:
  explicit Announcement(std::vector<Awaited> awaited) : awaited_(std::move(awaited)) {
    for (const auto& [status, sleeper] : awaited_)
      status->sleepers[sleeper / 64].fetch_or(bit_of(sleeper));
  }
  ~Announcement() {
    for (const auto& [status, sleeper] : awaited_)
      status->sleepers[sleeper / 64].fetch_and(~bit_of(sleeper));
  }
  Announcement(const Announcement&) = delete;
  Announcement& operator=(const Announcement&) = delete;

  bool covers(const std::vector<Awaited>& others) const {
    return std::all_of(others.begin(), others.end(), [&](const Awaited& other) {
      return std::find(awaited_.begin(), awaited_.end(), other) != awaited_.end();
    });
  }

 private:
  static uint64_t bit_of(int rank) { return uint64_t{1} << (rank % 64); }

  std::vector<Awaited> awaited_;
};

inline void ring_bell(Status& status) {
  status.bell.fetch_add(1);
  wake_all(status.bell);
}

}  // namespace cohort::shared_memory
