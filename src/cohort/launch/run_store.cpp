// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/run_store.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <nss.h>
#include <poll.h>
#include <string.h>

#include <cstdlib>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "cohort/core/error.h"

namespace cohort::process {
namespace {

int parse_port(const std::string& digits) {
  char* end = nullptr;
  const long port = std::strtol(digits.c_str(), &end, 10);
  return digits.empty() || *end || port < 0 || port > 65535 ? -1
                                                            : static_cast<int>(port);
}

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
  return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
}

void set_port(sockaddr_storage& address, int port) {
  auto& field = address.ss_family == AF_INET6
                    ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                    : reinterpret_cast<sockaddr_in&>(address).sin_port;
  field = htons(static_cast<uint16_t>(port));
}

int port_of(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

UniqueFd bound(const sockaddr_storage& address, socklen_t size, int& error) {
  UniqueFd fd(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const auto* raw = reinterpret_cast<const sockaddr*>(&address);
  error = ::bind(fd.get(), raw, size) == 0 ? 0 : errno;
  if (error) fd.reset();
  return fd;
}

// c10d's messages carry a C++ stack; the first line says it all.
template <typename Call>
auto guarded(const char* what, const std::string& key, Call&& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    const std::string message = error.what();
    throw CommError(text("[launch.store] ", what, " '", key,
                         "': ", message.substr(0, message.find('\n'))));
  }
}

std::vector<uint8_t> bytes(const std::string& value) {
  return {value.begin(), value.end()};
}

}  // namespace

Endpoint resolve_endpoint(const std::string& host_and_port) {
  const size_t colon = host_and_port.rfind(':');
  Endpoint endpoint;
  endpoint.host = host_and_port.substr(0, colon);
  endpoint.port =
      colon == std::string::npos ? -1 : parse_port(host_and_port.substr(colon + 1));
  if (endpoint.host.size() > 2 && endpoint.host.front() == '[') {
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  }
  if (endpoint.port < 0 || endpoint.host.empty()) {
    throw ConfigError(text("[launch.rdzv] not an address: '", host_and_port,
                           "'; legal: HOST:PORT, port 0 to 65535"));
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(endpoint.host.c_str(), nullptr, &hints, &found);
  if (code != 0 || !found) {
    throw ConfigError(text("[launch.rdzv] no address for host '", endpoint.host,
                           "': ", ::gai_strerror(code), "; give a name that resolves"));
  }
  memcpy(&endpoint.address, found->ai_addr, found->ai_addrlen);
  endpoint.address_size = found->ai_addrlen;
  ::freeaddrinfo(found);
  set_port(endpoint.address, endpoint.port);
  char numeric[NI_MAXHOST] = {};
  ::getnameinfo(reinterpret_cast<sockaddr*>(&endpoint.address), endpoint.address_size,
                numeric, sizeof numeric, nullptr, 0, NI_NUMERICHOST);
  endpoint.numeric = numeric;
  return endpoint;
}

UniqueFd try_listen(Endpoint& endpoint, int& error) {
  UniqueFd fd = bound(endpoint.address, endpoint.address_size, error);
  if (fd && !is_loopback(endpoint.address)) {
    sockaddr_storage any{};
    any.ss_family = endpoint.address.ss_family;
    set_port(any, endpoint.port);
    fd.reset();
    fd = bound(any, endpoint.address_size, error);
  }
  if (!fd) return fd;
  sockaddr_storage actual{};
  socklen_t size = sizeof actual;
  if (::listen(fd.get(), 1024) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&actual), &size) != 0) {
    error = errno;
    return UniqueFd();
  }
  endpoint.port = port_of(actual);
  set_port(endpoint.address, endpoint.port);
  return fd;
}

bool answers(const Endpoint& endpoint, std::chrono::milliseconds limit, int& error) {
  UniqueFd fd(::socket(endpoint.address.ss_family,
                       SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto* raw = reinterpret_cast<const sockaddr*>(&endpoint.address);
  error = 0;
  if (::connect(fd.get(), raw, endpoint.address_size) == 0) return true;
  error = errno;
  if (error != EINPROGRESS) return false;
  pollfd ready{fd.get(), POLLOUT, 0};
  if (::poll(&ready, 1, static_cast<int>(limit.count())) <= 0) {
    error = ETIMEDOUT;
    return false;
  }
  socklen_t size = sizeof error;
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0;
}

struct RunStore::Impl {
  c10::intrusive_ptr<c10d::TCPStore> store;

  void open(const Endpoint& endpoint, const c10d::TCPStoreOptions& options) {
    // TCPStore looks up the name of every peer, which stalls for seconds where DNS
    // does not answer. All addresses are numeric by now.
    ::__nss_configure_lookup("hosts", "files");
    ::setenv("TORCH_CPP_LOG_LEVEL", "ERROR", 0);
    const std::string where = text(endpoint.host, ":", endpoint.port);
    guarded("connect to", where, [&] {
      store = c10::make_intrusive<c10d::TCPStore>(endpoint.numeric, options);
    });
  }
};

RunStore::RunStore(UniqueFd listening, const Endpoint& endpoint)
    : impl_(std::make_unique<Impl>()) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(endpoint.port);
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = std::chrono::seconds(10);
  options.masterListenFd = listening.release();
  impl_->open(endpoint, options);
}

RunStore::RunStore(const Endpoint& endpoint, std::chrono::milliseconds timeout)
    : impl_(std::make_unique<Impl>()) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(endpoint.port);
  options.waitWorkers = false;
  options.timeout = timeout;
  impl_->open(endpoint, options);
}

RunStore::~RunStore() = default;

void RunStore::set(const std::string& key, const std::string& value) {
  guarded("set", key, [&] { impl_->store->set(key, bytes(value)); });
}

std::string RunStore::set_once(const std::string& key, const std::string& value) {
  return guarded("set", key, [&] {
    const auto now = impl_->store->compareSet(key, {}, bytes(value));
    return std::string(now.begin(), now.end());
  });
}

bool RunStore::has(const std::string& key) {
  return guarded("check", key, [&] { return impl_->store->check({key}); });
}

std::string RunStore::get(const std::string& key) {
  return guarded("get", key, [&] {
    const auto value = impl_->store->get(key);
    return std::string(value.begin(), value.end());
  });
}

int64_t RunStore::add(const std::string& key, int64_t amount) {
  return guarded("add to", key, [&] { return impl_->store->add(key, amount); });
}

}  // namespace cohort::process
