// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/backends.h"

#include <algorithm>
#include <array>
#include <map>

#include "cohort/comm/gloo/gloo.h"
#include "cohort/comm/hybrid/hybrid.h"
#include "cohort/comm/local/local.h"
#include "cohort/comm/mpi/mpi.h"
#include "cohort/comm/nccl/nccl.h"
#include "cohort/comm/nccl/nccl_library.h"
#include "cohort/comm/shm/shm.h"
#include "cohort/core/error.h"
#include "cohort/core/nearest.h"
#include "cohort/core/record.h"

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
    {"nccl", &nccl_fault, &make_nccl, &nccl_version},
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

std::string_view choose_backend(const World& world, std::span<const std::string> gpus) {
  if (world.size == 1) return "local";
  const bool all = static_cast<int>(gpus.size()) == world.size &&
                   std::ranges::none_of(gpus, &std::string::empty);
  if (all && shared_gpu(gpus).empty()) return "nccl";
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

std::string shared_gpu(std::span<const std::string> gpus) {
  std::map<std::string_view, size_t> taken;
  for (size_t rank = 0; rank < gpus.size(); ++rank) {
    if (gpus[rank].empty()) continue;
    const auto [first, is_new] = taken.emplace(gpus[rank], rank);
    if (!is_new) return text("ranks ", first->second, " and ", rank, " are on one GPU");
  }
  return "";
}

std::vector<std::string> told_by_ranks(const World& world, Store& store,
                                       std::string_view what, const std::string& mine,
                                       std::chrono::milliseconds timeout) {
  const std::string keys = text("comm/", what, "/", world.generation, "/");
  store.set(text(keys, world.rank), mine);
  // Rank 0 reads what each says and tells all of it, so that nobody asks everybody.
  if (world.rank == 0) {
    std::vector<std::string> found;
    for (int rank = 0; rank < world.size; ++rank)
      found.push_back(store.get(text(keys, rank), timeout));
    store.set(keys + "all", to_record(found));
  }
  return read_record<std::vector<std::string>>(
      store.get(keys + "all", timeout), ErrorKind::kComm,
      text("[comm] the store holds no list of the ranks' ", what));
}

namespace {

// NCCL's own refusal comes late and without the ranks' names.
void require_own_gpus(std::span<const std::string> gpus) {
  const std::string shared = shared_gpu(gpus);
  if (!shared.empty())
    throw ConfigError(
        text("[comm] backend 'nccl': ", shared,
             "; legal: a GPU for each rank, --backend auto, or, for tests, "
             "comm.nccl_share_gpu=true"));
}

// Every rank comes to the same: from what all of them say of their GPUs.
std::string_view agreed_backend(const World& world, Store& store,
                                const ConnectOptions& options) {
  const bool is_auto = options.backend == "auto";
  const bool asks = is_auto || (options.backend == "nccl" && !options.nccl_share_gpu);
  if (!asks || options.gpu.empty() || world.size == 1) return options.backend;
  find_backend(options.backend, world);
  const std::string mine = nccl_fault().empty() ? options.gpu : "";
  const auto gpus = told_by_ranks(world, store, "gpus", mine, options.join_timeout);
  if (is_auto) return choose_backend(world, gpus);
  require_own_gpus(gpus);
  return options.backend;
}

}  // namespace

std::unique_ptr<Communicator> connect(const World& world, Store& store,
                                      const ConnectOptions& options) {
  const std::string_view name = agreed_backend(world, store, options);
  return find_backend(name, world).make(world, store, options);
}

std::vector<std::unique_ptr<Communicator>> connect_threads(
    int ranks, std::chrono::milliseconds timeout) {
  return make_local(ranks, timeout);
}

}  // namespace cohort
