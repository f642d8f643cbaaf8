// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "cohort/core/unique_fd.h"

namespace cohort {

// The numeric address of `host`. Name service beyond /etc/hosts is asked here and
// nowhere else: afterwards it is switched off for this process, because c10d makes
// a reverse look-up on every connect, which stalls for seconds where DNS does not
// answer. Throws ConfigError for a name that is unknown.
std::string resolve_host(const std::string& host);

// c10d tells stderr of every refused connection and every stranger. What matters we
// throw: so nothing, unless TORCH_CPP_LOG_LEVEL asks for it.
void silence_c10d();

// A bound and listening TCP socket, closed on destruction unless released.
class Listener {
 public:
  // Binds to `address` ("127.0.0.1", or "0.0.0.0" for all interfaces); port 0 picks
  // a free one. Throws ConfigError, which names the port, where it is in use.
  Listener(const std::string& address, int port);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }
  int release();

 private:
  int socket_ = -1;
  int port_ = 0;
};

// Waits until something accepts connections at the numeric `address`. Returns the
// reason of the last failure, or nothing: a connection was made (and closed).
std::string await_listener(const std::string& address, int port,
                           std::chrono::milliseconds timeout);

// A connection to the numeric `address`, at the first attempt. None, and `reason`,
// where there is no listener or `timeout` passes.
UniqueFd connect_to(const std::string& address, int port,
                    std::chrono::milliseconds timeout, std::string& reason);

// 127.x.x.x or ::1.
bool is_loopback_address(const std::string& address);

// The numeric address others reach this machine at, if they can reach `address`: the
// one it would use to reach it (nothing is sent), or, where `address` is its own
// loopback, that of its first interface.
std::string local_address_towards(const std::string& address);

}  // namespace cohort
