// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "cohort/comm/relay/relay_driver.h"
#include "cohort/communicator.h"

namespace cohort::relay_backend {

// Pinned memory of the host through which the calls of a group go: a stretch for each
// lane that makes calls, as large as its largest one, and a word that lanes await. The
// calls of a lane follow one another, so its stretch is free when the next one comes to
// it, and no host waits for that.
//
// The memory is what `host` is fastest with: where ranks share memory they read one
// another's stretches, and nothing is copied once more.
class RelayMemory {
 public:
  using Lane = void*;

  // `host` is used by take() alone.
  RelayMemory(std::shared_ptr<RelayDriver> driver, Communicator& host);
  // What a lane may still use stays until the process ends.
  ~RelayMemory();
  RelayMemory(const RelayMemory&) = delete;
  RelayMemory& operator=(const RelayMemory&) = delete;

  // As the host has it, and as lanes have it.
  uint64_t* word() const { return reinterpret_cast<uint64_t*>(word_.begin); }
  uint64_t* word_of_lanes() const { return static_cast<uint64_t*>(word_.mapped); }

  // For the next call in that lane, which is the current one.
  std::byte* take(Lane lane, size_t bytes);
  // The lane was given all that uses what take() returned.
  void leave(Lane lane) noexcept;

  // Nothing of it is in use by a lane.
  bool is_idle() const;

 private:
  struct Stretch {
    Tensor memory;               // with room to begin at a page
    std::byte* begin = nullptr;  // where the pages begin
    size_t bytes = 0;
    void* mapped = nullptr;
    std::shared_ptr<device_comm::Flight> last;  // that uses it

    bool is_idle() const;
  };

  Stretch make(size_t bytes) const;
  void drop(Stretch& stretch) const;
  void drop_outgrown();

  std::shared_ptr<RelayDriver> driver_;
  Communicator& host_;
  Stretch word_;
  std::map<Lane, Stretch> stretches_;
  std::vector<Stretch> outgrown_;
};

}  // namespace cohort::relay_backend
