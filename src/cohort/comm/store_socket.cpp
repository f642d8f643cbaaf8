// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/store_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "cohort/core/error.h"

namespace cohort {
namespace {

struct AbstractAddress {
  explicit AbstractAddress(const std::string& name) {
    COHORT_CHECK(name.size() < sizeof(value.sun_path), name, " is too long");
    value.sun_family = AF_UNIX;
    memcpy(value.sun_path + 1, name.data(), name.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&value); }

  sockaddr_un value{};
  socklen_t size;
};

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
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == ::geteuid() || peer.uid == 0);
}

}  // namespace cohort
