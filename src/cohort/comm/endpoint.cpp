// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/endpoint.h"

#include <arpa/inet.h>
#include <c10/util/Logging.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nss.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "cohort/core/error.h"

C10_DECLARE_int(caffe2_log_level);

namespace cohort {
namespace {

using SteadyClock = std::chrono::steady_clock;
using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList look_up(const std::string& host, int port, int flags, int& error) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  return AddressList(list, &freeaddrinfo);
}

AddressList numeric(const std::string& address, int port) {
  int error = 0;
  auto list = look_up(address, port, AI_NUMERICHOST, error);
  COHORT_CHECK(error == 0, address, " is no numeric address");
  return list;
}

std::string to_text(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST];
  const int error =
      getnameinfo(address, length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  COHORT_CHECK(error == 0, gai_strerror(error));
  return host;
}

// Prefers an IPv4 address where there are several: c10d's store tries them differently.
const addrinfo* prefer_ipv4(const addrinfo* list) {
  for (const addrinfo* item = list; item != nullptr; item = item->ai_next) {
    if (item->ai_family == AF_INET) return item;
  }
  return list;
}

// The connection, or none and the errno of one attempt.
UniqueFd try_connect(const addrinfo& target, std::chrono::milliseconds timeout,
                     int& error) {
  UniqueFd fd(socket(target.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  error = fd ? 0 : errno;
  if (!fd) return fd;
  error = connect(fd.get(), target.ai_addr, target.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd waiter{fd.get(), POLLOUT, 0};
    error = ETIMEDOUT;
    if (poll(&waiter, 1, static_cast<int>(timeout.count())) > 0) {
      socklen_t length = sizeof(error);
      getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    }
  }
  if (error != 0) fd.reset();
  return fd;
}

}  // namespace

void silence_c10d() {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {
    FLAGS_caffe2_log_level = c10::GLOG_FATAL;
  }
}

std::string resolve_host(const std::string& host) {
  const std::string name = host.empty() || host == "localhost" ? "127.0.0.1" : host;
  int error = 0;
  auto list = look_up(name, 0, AI_NUMERICHOST, error);
  if (error != 0) {
    __nss_configure_lookup("hosts", "files dns");
    list = look_up(name, 0, 0, error);
  }
  __nss_configure_lookup("hosts", "files");
  if (error != 0) {
    throw ConfigError(text("[comm.store] host '", host, "': ", gai_strerror(error),
                           "; legal is a name or address of the node of rank 0"));
  }
  const addrinfo* best = prefer_ipv4(list.get());
  return to_text(best->ai_addr, best->ai_addrlen);
}

Listener::Listener(const std::string& address, int port) {
  const auto list = numeric(address, port);
  socket_ = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  if (socket_ < 0 || setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
      bind(socket_, list->ai_addr, list->ai_addrlen) || listen(socket_, SOMAXCONN) ||
      getsockname(socket_, reinterpret_cast<sockaddr*>(&bound), &length)) {
    const int error = errno;
    if (socket_ >= 0) close(socket_);
    throw ConfigError(text("[comm.store] cannot listen on port ", port, " of ", address,
                           ": ",
                           error == EADDRINUSE ? "it is in use" : std::strerror(error),
                           "; legal is a free port, or 0 for any"));
  }
  port_ = ntohs(bound.ss_family == AF_INET6
                    ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                    : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

Listener::~Listener() {
  if (socket_ >= 0) close(socket_);
}

int Listener::release() { return std::exchange(socket_, -1); }

std::string await_listener(const std::string& address, int port,
                           std::chrono::milliseconds timeout) {
  using std::chrono::milliseconds;
  const auto list = numeric(address, port);
  const auto deadline = SteadyClock::now() + timeout;
  for (milliseconds pause{2};; pause = std::min(pause * 2, milliseconds{100})) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - SteadyClock::now());
    int error = 0;
    if (try_connect(*list, std::max(left, milliseconds{1}), error)) return {};
    if (SteadyClock::now() + pause >= deadline) return std::strerror(error);
    std::this_thread::sleep_for(pause);
  }
}

UniqueFd connect_to(const std::string& address, int port,
                    std::chrono::milliseconds timeout, std::string& reason) {
  int error = 0;
  UniqueFd socket = try_connect(*numeric(address, port), timeout, error);
  if (socket) {
    const int on = 1;
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  } else {
    reason = std::strerror(error);
  }
  return socket;
}

bool is_loopback_address(const std::string& address) {
  return address.rfind("127.", 0) == 0 || address == "::1";
}

namespace {

std::string first_outer_address(const std::string& otherwise) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return otherwise;
  std::string found = otherwise;
  for (const ifaddrs* item = list; item != nullptr; item = item->ifa_next) {
    const bool usable = (item->ifa_flags & IFF_UP) && !(item->ifa_flags & IFF_LOOPBACK);
    if (!usable || !item->ifa_addr || item->ifa_addr->sa_family != AF_INET) continue;
    found = to_text(item->ifa_addr, sizeof(sockaddr_in));
    break;
  }
  freeifaddrs(list);
  return found;
}

}  // namespace

std::string local_address_towards(const std::string& address) {
  const auto list = numeric(address, 9);
  const int fd = socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage self{};
  socklen_t length = sizeof(self);
  const bool found = fd >= 0 && connect(fd, list->ai_addr, list->ai_addrlen) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&self), &length) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!found) {
    throw ConfigError(
        text("[comm.store] no route to ", address, ": ", std::strerror(error)));
  }
  const std::string mine = to_text(reinterpret_cast<sockaddr*>(&self), length);
  return mine.starts_with("127.") ? first_outer_address(mine) : mine;
}

}  // namespace cohort
