// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/backends.h"

#include <array>
#include <vector>

#include "cohort/comm/gloo/gloo.h"
#include "cohort/comm/hybrid/hybrid.h"
#include "cohort/comm/local/local.h"
#include "cohort/comm/mpi/mpi.h"
#include "cohort/comm/nccl/nccl.h"
#include "cohort/comm/shm/shm.h"
#include "cohort/core/error.h"
#include "cohort/core/nearest.h"

namespace cohort {
namespace {

std::string no_fault() { return ""; }

template <bool (*is_available)()>
std::string later() {
  return is_available() ? "" : "comes with a later release";
}

std::unique_ptr<Communicator> make_alone(const World& world, Store&,
                                         const ConnectOptions& options) {
  if (world.size > 1) {
    throw ConfigError(text("[comm] backend 'local' serves the ranks of one process; ",
                           "this world has ", world.size, ": use auto, shm or gloo"));
  }
  return std::move(make_local(1, options.timeout, world.generation)[0]);
}

constexpr std::array<Backend, 6> kBackends{{
    {"local", &no_fault, &make_alone},
    {"shm", &no_fault, &make_shm},
    {"gloo", &no_fault, &make_gloo},
    {"mpi", &later<mpi_is_available>, &make_mpi},
    {"nccl", &nccl_fault, &make_nccl},
    {"hybrid", &later<hybrid_is_available>, &make_hybrid},
}};

}  // namespace

std::span<const Backend> backends() { return kBackends; }

std::string available_backends() {
  std::string names = "auto";
  for (const Backend& backend : kBackends) {
    if (backend.is_available()) names += text(", ", backend.name);
  }
  return names;
}

std::string_view choose_backend(const World& world) {
  if (world.size == 1) return "local";
  return world.local_size == world.size ? "shm" : "gloo";
}

const Backend& find_backend(std::string_view name, const World& world) {
  const std::string_view wanted = name == "auto" ? choose_backend(world) : name;
  std::vector<std::string_view> names{"auto"};
  for (const Backend& backend : kBackends) {
    names.push_back(backend.name);
    if (backend.name != wanted) continue;
    const std::string fault = backend.fault();
    if (fault.empty()) return backend;
    throw ConfigError(text("[comm] backend '", name, "' ", fault,
                           "; available: ", available_backends()));
  }
  throw ConfigError(text("[comm] unknown backend '", name, "', nearest is '",
                         nearest(name, names), "'; available: ", available_backends()));
}

std::unique_ptr<Communicator> connect(const World& world, Store& store,
                                      const ConnectOptions& options) {
  return find_backend(options.backend, world).make(world, store, options);
}

}  // namespace cohort
