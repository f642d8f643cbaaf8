// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cohort/comm/local_store.h"
#include "cohort/comm/store_link.h"
#include "cohort/core/error.h"

namespace cohort {

// Where a guarded store is, and who may use it.
struct StoreDoor {
  std::string address;  // numeric
  int port = 0;
  // What both sides must know: connections are proved and sealed by it (TlsSession).
  // Empty: the store is not on the network but a socket of this machine, named by
  // address and port, which knows this user and root alone.
  std::string secret;
};

// The name of its socket where it has no secret.
std::string socket_name(const StoreDoor& door);

// Nobody was there, or nobody who could be an agent of ours.
class NobodyThere : public CommError {
 public:
  using CommError::CommError;
};

// A client. Calls wait for their answer on the caller's thread.
//
// Failure: the constructor throws ConfigError where the other side has another secret
// (or belongs to another user), NobodyThere where it is no such store or does not
// answer in time, CommError where it hangs up. A call throws CommError, and the store
// is lost then.
class GuardedStore : public Store {
 public:
  GuardedStore(const StoreDoor& door, std::chrono::milliseconds timeout);

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  bool has(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  // The server sets it when this connection ends, in whatever way.
  void set_at_end(const std::string& key, const std::string& value);

 private:
  void greet(std::chrono::milliseconds timeout);
  StoreAnswer ask(const StoreRequest& request, std::chrono::milliseconds extra);

  std::string where_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<TlsKey> key_;
  std::unique_ptr<StoreLink> link_;  // none: lost
};

// The store itself, for its own process a Store like any other. Runs one thread.
//
// A stranger gets nothing but the refusal of its handshake. Connections that have not
// proved themselves are few, and have a few seconds; they cost memory of that order.
//
// Thread safety: full.
class GuardedStoreServer : public Store {
 public:
  // Throws ConfigError, naming the port, where it is in use.
  explicit GuardedStoreServer(const StoreDoor& door);
  ~GuardedStoreServer() override;

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  bool has(const std::string& key) override { return table_.has(key); }
  int64_t add(const std::string& key, int64_t amount) override;

  // Addresses of those who came with another secret since the last call; each is named
  // once.
  std::vector<std::string> take_refused();

 private:
  struct Guest;
  using Clock = std::chrono::steady_clock;

  void serve();
  void accept_guests();
  bool attend(Guest& guest);
  bool handle(Guest& guest, const StoreRequest& request);
  bool settle_wait(Guest& guest);
  void drop(Guest& guest);
  void note_refused(const std::string& address);
  void wake();

  LocalStore table_;
  UniqueFd listener_, wake_;
  std::unique_ptr<TlsKey> key_;
  std::vector<std::unique_ptr<Guest>> guests_;  // the thread's
  std::mutex mutex_;
  std::vector<std::string> refused_, told_;
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

}  // namespace cohort
