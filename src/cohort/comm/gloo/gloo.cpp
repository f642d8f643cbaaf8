// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/gloo/gloo.h"

#include <ATen/ATen.h>
#include <signal.h>

#include <cstdlib>
#include <exception>

#include "cohort/comm/endpoint.h"
#include "cohort/comm/gloo/gloo_communicator.h"
#include "cohort/comm/gloo/group.h"
#include "cohort/comm/tcp_store.h"
#include "cohort/core/error.h"
#include "cohort/core/first_line.h"

namespace cohort {
namespace gloo_backend {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kNoteTimeout{200};

// A store that belongs to someone else.
class BorrowedStore : public Store {
 public:
  explicit BorrowedStore(Store& store) : store_(store) {}
  void set(const std::string& key, const std::string& value) override {
    store_.set(key, value);
  }
  std::string get(const std::string& key, milliseconds timeout) override {
    return store_.get(key, timeout);
  }
  bool has(const std::string& key) override { return store_.has(key); }
  int64_t add(const std::string& key, int64_t amount) override {
    return store_.add(key, amount);
  }

 private:
  Store& store_;
};

// How to reach the store from any thread, quickly or not at all.
Notes::Open side_door(Store& store) {
  if (auto* tcp = dynamic_cast<TcpStore*>(&store)) {
    TcpStoreOptions options = tcp->options();
    options.timeout = kNoteTimeout;
    return [options] { return std::make_unique<TcpStore>(options); };
  }
  return [&store] { return std::make_unique<BorrowedStore>(store); };
}

std::string missing_at_start(Store& store, const GroupOptions& options) {
  std::vector<int> missing;
  for (int rank = 0; rank < options.size; ++rank) {
    if (!store.has(text(options.prefix, "here/", rank))) missing.push_back(rank);
  }
  return missing.empty() ? "" : describe_missing(missing) + ": ";
}

// A rank that ends at once would close connections which a peer is still making, so
// nobody has the group before everybody has.
void await_all(Store& store, const GroupOptions& options) {
  const std::string all = options.prefix + "connected/all";
  if (store.add(options.prefix + "connected", 1) == options.size) store.set(all, "");
  store.get(all, options.timeout);
}

c10::intrusive_ptr<c10d::Backend> open_or_explain(Store& store,
                                                  const GroupOptions& options) {
  try {
    store.set(text(options.prefix, "here/", options.rank), "");
    auto group = open_group(store, options);
    await_all(store, options);
    return group;
  } catch (const std::exception& error) {
    throw CommError(text("[comm.gloo] connect: ", missing_at_start(store, options),
                         first_line(error.what()), " (rank ", options.rank, " of ",
                         options.size, ")"));
  }
}

// Gloo writes to sockets whose peer may be gone; Python ignores the signal too.
void ignore_sigpipe() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
    signal(SIGPIPE, SIG_IGN);
  }
}

}  // namespace

std::unique_ptr<Communicator> make_group(Store& store, const GroupOptions& options,
                                         int generation) {
  auto group = open_or_explain(store, options);
  Notes notes(side_door(store), options.prefix + "note/", options.rank, options.size);
  auto state = std::make_shared<State>(std::move(group), std::move(notes));
  return std::make_unique<GlooCommunicator>(std::move(state), store, options,
                                            generation);
}

}  // namespace gloo_backend

std::unique_ptr<Communicator> make_gloo(const World& world, Store& store,
                                        const ConnectOptions& options) {
  gloo_backend::ignore_sigpipe();
  gloo_backend::GroupOptions group{.rank = world.rank,
                                   .size = world.size,
                                   .address = "127.0.0.1",
                                   .prefix = text("gloo/", world.generation, "/"),
                                   .timeout = options.timeout};
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != 0) {
    group.interface = interface;
  } else if (world.local_size != world.size) {
    group.address = local_address_towards(resolve_host(world.master_addr));
  }
  return gloo_backend::make_group(store, group, world.generation);
}

}  // namespace cohort
