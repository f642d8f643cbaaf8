// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <optional>
#include <string>

#include "cohort/core/error.h"

namespace cohort {

// A name in the kernel's own name space of this machine: it leaves no file behind, and
// goes with its socket.
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

// The process at the other end of a connection on this machine, and its user.
inline std::optional<ucred> peer_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {};
  return peer;
}

}  // namespace cohort
