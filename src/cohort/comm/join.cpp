// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/join.h"

#include <unistd.h>

#include <vector>

#include "cohort/comm/join_card.h"
#include "cohort/comm/local_store.h"
#include "cohort/comm/tcp_store.h"
#include "cohort/core/error.h"
#include "cohort/core/process.h"
#include "cohort/version.h"

namespace cohort {
namespace {

constexpr std::chrono::milliseconds kVerdictWait{5'000};
constexpr std::chrono::milliseconds kFarewellWait{5'000};

constexpr const char* kVerdict = "join/verdict";
constexpr const char* kVerdictClaim = "join/verdict_claim";

std::string key_prefix(const World& world) {
  return text("cohort/", world.token, "/", world.generation, "/");
}

// The verdict of a world: "ok", or why it is refused. The first word of a refusal
// is the kind of error.
class JoinVerdict {
 public:
  JoinVerdict(Store& store, int world_size) : store_(store), world_size_(world_size) {}

  void accept() { write("ok"); }
  void refuse(const std::string& why) { write("config " + why); }
  void give_up(const std::string& why) { write("comm " + why); }

  // Waits for it. Throws CommError from the store when there is none in time.
  std::string read(std::chrono::milliseconds timeout) {
    const std::string verdict = store_.get(kVerdict, timeout);
    if (store_.add("join/seen", 1) >= world_size_) store_.set("join/all_seen", "");
    return verdict;
  }

  // Throws what was wrong with the world, if anything was.
  static void enforce(const std::string& verdict) {
    if (verdict.rfind("config ", 0) == 0) throw ConfigError(verdict.substr(7));
    if (verdict.rfind("comm ", 0) == 0) throw CommError(verdict.substr(5));
  }

 private:
  // The first one counts: a rank that is late cannot turn a refusal around.
  void write(const std::string& value) {
    if (store_.add(kVerdictClaim, 1) == 1) store_.set(kVerdict, value);
  }

  Store& store_;
  int world_size_;
};

// Keeps a refused world's store up until all ranks have come and read why, but not
// for long.
void say_farewell(Store& store) {
  try {
    store.get("join/all_seen", kFarewellWait);
  } catch (const CommError&) {
  }
}

// What is wrong with `mine` in the world of `first`; empty if nothing.
std::string difference(const JoinCard& mine, const JoinCard& first) {
  if (mine.size != first.size) {
    return text("[comm.join] world size differs: ", mine.where(), " was given ",
                mine.size, ", ", first.where(), " ", first.size,
                "; all ranks need one WORLD_SIZE");
  }
  if (mine.version != first.version) {
    return text("[comm.join] program version differs: ", mine.where(), " runs ",
                mine.version, ", ", first.where(), " runs ", first.version,
                "; all ranks need the same build");
  }
  return {};
}

std::string rank_key(int rank) { return text("join/card/", rank); }

std::string missing_ranks(const World& world, Store& store) {
  std::string names;
  for (int rank = 0; rank < world.size; ++rank) {
    if (store.has(rank_key(rank))) continue;
    names += text(names.empty() ? "" : ", ", rank);
  }
  return names;
}

// Leaves this rank's card; the first one is what the others are compared with.
void arrive(const JoinCard& card, Store& store, JoinVerdict& verdict) {
  if (store.add(text("join/claim/", card.rank), 1) > 1) {
    const JoinCard other = to_card(store.get(rank_key(card.rank), kVerdictWait));
    const std::string fault =
        text("[comm.join] rank ", card.rank, " came twice: ", other.where(), " and ",
             card.where(), "; every process needs its own RANK");
    verdict.refuse(fault);
    JoinVerdict::enforce(verdict.read(kVerdictWait));
    throw ConfigError(fault);  // the world was whole already, without this one
  }
  store.set(rank_key(card.rank), to_record(card));
  if (store.add("join/arrived", 1) == 1) store.set("join/first", to_record(card));
}

}  // namespace

std::string program_version() { return text(version(), "+", build_id()); }

void find_peers(const World& world, Store& store, const ConnectOptions& options,
                const std::string& version) {
  const JoinCard card{world.rank, world.size, version, host_name(), getpid()};
  JoinVerdict verdict(store, world.size);
  arrive(card, store, verdict);
  const JoinCard first = to_card(store.get("join/first", kVerdictWait));
  const std::string fault = difference(card, first);
  // Only a rank that finds no fault is counted: a refusal cannot be overtaken.
  if (!fault.empty()) {
    verdict.refuse(fault);
  } else if (store.add("join/agreed", 1) == world.size) {
    verdict.accept();
  }
  std::string result;
  try {
    result = verdict.read(options.join_timeout);
  } catch (const CommError&) {
    verdict.give_up(
        text("[comm.join] ranks that never came: ", missing_ranks(world, store), " of ",
             world.size, " (waited ", options.join_timeout.count(), " ms)"));
    result = verdict.read(kVerdictWait);
  }
  JoinVerdict::enforce(result);
  if (!fault.empty()) throw ConfigError(fault);  // the world is whole without this one
}

std::unique_ptr<Store> join_as(const World& world, const ConnectOptions& options,
                               const std::string& version) {
  if (world.master_port == 0) return std::make_unique<LocalStore>();
  std::unique_ptr<StoreServer> server;
  if (world.hosts_store) {
    const bool one_node = world.local_size == world.size;
    server = std::make_unique<StoreServer>(one_node ? "127.0.0.1" : "0.0.0.0",
                                           world.master_port);
  }
  const TcpStoreOptions where{
      .host = world.hosts_store ? "127.0.0.1" : world.master_addr,
      .port = world.master_port,
      .prefix = key_prefix(world),
      .timeout = options.join_timeout};
  auto store = std::make_unique<TcpStore>(where, std::move(server));
  try {
    find_peers(world, *store, options, version);
  } catch (const Error&) {
    if (world.hosts_store) say_farewell(*store);
    throw;
  }
  return store;
}

std::unique_ptr<Store> join(const World& world, const ConnectOptions& options) {
  return join_as(world, options, program_version());
}

bool close_world(const World& world, StoreServer& server, const std::string& why) {
  const StoreSeal seal(key_prefix(world));
  if (server.add(seal.name(kVerdictClaim), 1) > 1) return false;
  server.set(seal.name(kVerdict), seal.close(kVerdict, "comm " + why));
  return true;
}

}  // namespace cohort
