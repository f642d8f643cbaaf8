// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cohort/comm/world.h"

namespace cohort {

// A backend, as connect() sees it.
struct Backend {
  std::string_view name;
  // Why not, to be said after its name; empty: it is available.
  std::string (*fault)();
  std::unique_ptr<Communicator> (*make)(const World&, Store&, const ConnectOptions&);

  bool is_available() const { return fault().empty(); }
};

// All of them: the one place that lists backends.
std::span<const Backend> backends();

// "auto, local, shm, gloo"
std::string available_backends();

// What `auto` means for this world.
std::string_view choose_backend(const World& world);

// The row of a name that is legal and available. Throws ConfigError otherwise, with
// the nearest name, or with what is available.
const Backend& find_backend(std::string_view name, const World& world);

}  // namespace cohort
