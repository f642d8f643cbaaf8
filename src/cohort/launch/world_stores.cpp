// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/world_stores.h"

#include "cohort/comm/join.h"

namespace cohort::process {
namespace {

constexpr size_t kMostClosedStores = 8;

}  // namespace

void WorldStores::prepare() {
  if (!next_) next_ = std::make_unique<StoreServer>();
}

void WorldStores::close(const World& world) {
  if (store_ && close_world(world, *store_, "[elastic] this world is over")) {
    closed_.push_back(std::move(store_));
    if (closed_.size() > kMostClosedStores) closed_.pop_front();
  }
  store_.reset();
}

int WorldStores::open() {
  prepare();
  store_ = std::move(next_);
  return store_->port();
}

}  // namespace cohort::process
