// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <utility>

#include "cohort/comm/tcp_store.h"
#include "cohort/comm/world.h"

namespace cohort::process {

// The stores in which the ranks of an elastic run meet, one for each world.
class WorldStores {
 public:
  explicit WorldStores(std::unique_ptr<StoreServer> first) : store_(std::move(first)) {}

  // Makes the store of the next world ahead, unless there is one: a recovery is a race.
  void prepare();
  // Frees the ranks that wait in the store of `world`, which is over: by its end, or,
  // where someone may still come to it, by a word in it.
  void close(const World& world);
  // Opens that of the next world and returns its port. The one before is closed.
  int open();

 private:
  std::unique_ptr<StoreServer> store_;  // this world's; none once it is broken
  std::unique_ptr<StoreServer> next_;
  // For worlds that ended before all ranks had joined: a rank that still comes hears it
  // there.
  std::deque<std::unique_ptr<StoreServer>> closed_;
};

}  // namespace cohort::process
