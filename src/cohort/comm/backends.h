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
  bool (*is_available)();
  std::unique_ptr<Communicator> (*make)(const World&, Store&, const ConnectOptions&);
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
