// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "cohort/comm/store.h"

namespace cohort::gloo_backend {

struct GroupOptions {
  int rank = 0;
  int size = 1;
  std::string address;         // this rank's, numeric; or empty with `interface` given
  std::string interface = "";  // a network interface, as in GLOO_SOCKET_IFNAME
  std::string prefix;          // what its keys in the store begin with
  std::chrono::milliseconds timeout{0};
};

// Collective: connects all ranks with one another. The store is not used after it
// returns.
c10::intrusive_ptr<c10d::Backend> open_group(Store& store, const GroupOptions& options);

// The next collective meets only those of peers with the same tag. Without it one
// that differs in size would meet ours, and gloo ends the process over that.
void tag_next(c10d::Backend& group, uint32_t tag);
// A tag for one message of an exchange: the same reason.
int message_tag(int64_t bytes, at::ScalarType dtype);

// Closes the connections to all peers: what is pending here and there fails at once.
void close_connections(c10d::Backend& group);

}  // namespace cohort::gloo_backend
