// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "cohort/launch/process.h"

namespace cohort::process {

// HOST:PORT, resolved.
struct Endpoint {
  std::string host;     // as given
  std::string numeric;  // its address
  int port = 0;
  sockaddr_storage address{};
  socklen_t address_size = 0;
};

// "HOST:PORT" or "[V6]:PORT". ConfigError for anything else and for a host without
// an address.
Endpoint resolve_endpoint(const std::string& host_and_port);

// A listening socket at the endpoint (port 0: any free one, then filled in). Empty,
// with `error` set, when the address is another machine's or the port is taken.
// Loopback addresses listen there alone; others listen everywhere, because a host's
// own name often means loopback to itself.
UniqueFd try_listen(Endpoint& endpoint, int& error);

// True if something accepts connections there now; else `error` says why not.
bool answers(const Endpoint& endpoint, std::chrono::milliseconds limit, int& error);

// The run's key-value store, c10d's TCPStore: the agent of node 0 serves it from a
// thread of its own, ranks and other agents are its clients. A script started by
// torchrun expects exactly that.
//
// Failure: CommError when the server is gone or does not answer in time.
class RunStore {
 public:
  // Serves on a socket of try_listen().
  RunStore(UniqueFd listening, const Endpoint& endpoint);
  // A client.
  RunStore(const Endpoint& endpoint, std::chrono::milliseconds timeout);
  ~RunStore();

  void set(const std::string& key, const std::string& value);
  // Sets the key if it is not there; returns what is there then.
  std::string set_once(const std::string& key, const std::string& value);
  bool has(const std::string& key);
  std::string get(const std::string& key);  // the key is there
  int64_t add(const std::string& key, int64_t amount);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::process
