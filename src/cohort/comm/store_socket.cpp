// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/store_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "cohort/core/abstract_address.h"
#include "cohort/core/error.h"

namespace cohort {
namespace {

UniqueFd stream_socket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

UniqueFd listen_on_this_machine(const std::string& name) {
  const AbstractAddress address(name);
  UniqueFd socket = stream_socket();
  if (!socket || ::bind(socket.get(), address.get(), address.size) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    throw ConfigError(text("[comm.store] cannot listen at ", name, ": ",
                           errno == EADDRINUSE ? "it is in use" : strerror(errno)));
  }
  return socket;
}

UniqueFd connect_on_this_machine(const std::string& name) {
  const AbstractAddress address(name);
  UniqueFd socket = stream_socket();
  if (socket && ::connect(socket.get(), address.get(), address.size) != 0) {
    socket.reset();
  }
  return socket;
}

bool is_own_user(int socket) {
  const auto peer = peer_of(socket);
  return peer && (peer->uid == ::geteuid() || peer->uid == 0);
}

}  // namespace cohort
