// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "cohort/comm/store.h"
#include "cohort/comm/store_seal.h"

namespace cohort {

// Hosts a run's store: a c10d::TCPStore that ranks of ours and of PyTorch can use.
// Runs one thread; the store lives until destruction.
//
// A stranger who connects and says nothing, or nonsense, disturbs nobody. One who
// speaks c10d's language can list and delete keys and alter counters; values it can
// neither read nor forge (StoreSeal).
class StoreServer {
 public:
  // Binds to `address`: "127.0.0.1" for a run of one node, "0.0.0.0" for several.
  // Port 0 picks a free one. Throws ConfigError, naming the port, if it is in use.
  explicit StoreServer(const std::string& address = "127.0.0.1", int port = 0);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  int port() const { return port_; }

  // As a client's, but whole keys, and without a deadline: the store is here.
  void set(const std::string& key, const std::string& value);
  int64_t add(const std::string& key, int64_t amount);
  // The keys of all clients, counted by the store.
  int64_t num_keys() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  int port_ = 0;
};

struct TcpStoreOptions {
  std::string host = "127.0.0.1";
  int port = 0;
  // Before every key; the run's token is in it. Names and values are sealed by it
  // (StoreSeal), for c10d's store answers anyone. Empty: they are not.
  std::string prefix = "";
  // How long to try to connect, and the longest a call other than get() may take.
  std::chrono::milliseconds timeout{60'000};
};

// A client of a store. Every call has a deadline, also where the store's host is
// frozen: calls run on a thread of their own, which is left behind if it never
// comes back.
class TcpStore : public Store {
 public:
  // Throws CommError, naming host, port and how long it tried.
  explicit TcpStore(const TcpStoreOptions& options);
  // The same, and the store itself lives here too.
  TcpStore(const TcpStoreOptions& options, std::unique_ptr<StoreServer> server);
  ~TcpStore() override;

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  bool has(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;

  const TcpStoreOptions& options() const { return options_; }

 private:
  class Caller;
  TcpStoreOptions options_;
  StoreSeal seal_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<Caller> caller_;
};

}  // namespace cohort
