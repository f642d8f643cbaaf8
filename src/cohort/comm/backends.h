// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/comm/world.h"

namespace cohort {

// A backend, as connect() sees it.
struct Backend {
  std::string_view name;
  // Why not, to be said after its name; empty: it is available.
  std::string (*fault)();
  std::unique_ptr<Communicator> (*make)(const World&, Store&, const ConnectOptions&);
  // The library that it is made of: "NCCL 2.28.9". Null: there is none.
  std::string (*version)() = nullptr;

  bool is_available() const { return fault().empty(); }
};

// All of them: the one place that lists backends.
std::span<const Backend> backends();

// "auto, local, shm, gloo"
std::string available_backends();

// What `auto` means for this world: nccl where `gpus` names a GPU for each rank and
// none twice, else what serves ranks on the host.
std::string_view choose_backend(const World& world,
                                std::span<const std::string> gpus = {});

// The first two ranks with the same GPU, as the end of a sentence ("ranks 0 and 2 are
// on one GPU"); empty: there are none.
std::string shared_gpu(std::span<const std::string> gpus);

// Collective: what each rank gives as `mine`, by rank; the same list on every rank.
// `what` names it: a word that nothing else of this world has. CommError if one does
// not come in time.
std::vector<std::string> told_by_ranks(const World& world, Store& store,
                                       std::string_view what, const std::string& mine,
                                       std::chrono::milliseconds timeout);

// The row of a name that is legal and available. Throws ConfigError otherwise, with
// the nearest name, or with what is available.
const Backend& find_backend(std::string_view name, const World& world);

// A world inside this process: a communicator for each of its threads.
std::vector<std::unique_ptr<Communicator>> connect_threads(
    int ranks, std::chrono::milliseconds timeout);

}  // namespace cohort
