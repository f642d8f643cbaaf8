// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>

#include "cohort/comm/endpoint.h"
#include "cohort/comm/guarded_store.h"
#include "cohort/comm/store_socket.h"
#include "cohort/core/error.h"

namespace cohort {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kProofLimit{5};  // for a handshake
constexpr size_t kMostUnproved = 64;            // connections; the oldest goes
constexpr int kMostAtOnce = 16;                 // accepted before all are attended to
constexpr size_t kMostRefused = 16;             // addresses that are named
constexpr milliseconds kAcceptPause{100};       // when there are no descriptors left
constexpr milliseconds kLongestWait{3'600'000};

std::string address_text(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST];
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  const int error =
      ::getnameinfo(generic, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? host : "an unknown address";
}

}  // namespace

struct GuardedStoreServer::Guest {
  Guest(UniqueFd socket, std::unique_ptr<TlsSession> session, std::string from)
      : link(std::move(socket), std::move(session)), address(std::move(from)) {}

  StoreLink link;
  std::string address;
  Clock::time_point came = Clock::now();
  std::vector<StoreRequest> at_end;
  std::optional<std::string> awaited;  // the key of a get
  Clock::time_point until{};
};

GuardedStoreServer::GuardedStoreServer(const StoreDoor& door)
    : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (door.secret.empty()) {
    listener_ = listen_on_this_machine(socket_name(door));
  } else {
    listener_.reset(Listener(door.address, door.port).release());
    const int flags = ::fcntl(listener_.get(), F_GETFL);
    ::fcntl(listener_.get(), F_SETFL, flags | O_NONBLOCK);
    key_ = std::make_unique<TlsKey>(door.secret, TlsKey::Side::kServer);
  }
  thread_ = std::thread([this] { serve(); });
}

GuardedStoreServer::~GuardedStoreServer() {
  stopped_ = true;
  wake();
  thread_.join();
}

void GuardedStoreServer::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof one);
}

void GuardedStoreServer::set(const std::string& key, const std::string& value) {
  table_.set(key, value);
  wake();  // someone may wait for it
}

std::string GuardedStoreServer::get(const std::string& key, milliseconds timeout) {
  return table_.get(key, timeout);
}

int64_t GuardedStoreServer::add(const std::string& key, int64_t amount) {
  return table_.add(key, amount);
}

std::vector<std::string> GuardedStoreServer::take_refused() {
  std::lock_guard lock(mutex_);
  return std::exchange(refused_, {});
}

void GuardedStoreServer::note_refused(const std::string& address) {
  std::lock_guard lock(mutex_);
  const bool known = std::find(told_.begin(), told_.end(), address) != told_.end();
  if (known || told_.size() >= kMostRefused) return;
  told_.push_back(address);
  refused_.push_back(address);
}

void GuardedStoreServer::serve() {
  while (!stopped_) {
    std::vector<pollfd> polls{{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    auto until = Clock::now() + std::chrono::seconds(1);
    for (const auto& guest : guests_) {
      polls.push_back({guest->link.fd(), guest->link.events(), 0});
      if (!guest->link.proved()) until = std::min(until, guest->came + kProofLimit);
      if (guest->awaited) until = std::min(until, guest->until);
    }
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    ::poll(polls.data(), polls.size(), std::max<int>(0, left.count()));
    uint64_t wakes = 0;
    [[maybe_unused]] const ssize_t n = ::read(wake_.get(), &wakes, sizeof wakes);
    if (polls[1].revents) accept_guests();
    // What one sets another may wait for, so the waits are looked at last.
    std::erase_if(guests_, [this](const auto& guest) { return !attend(*guest); });
    std::erase_if(guests_, [this](const auto& guest) { return !settle_wait(*guest); });
  }
}

void GuardedStoreServer::accept_guests() {
  for (int i = 0; i < kMostAtOnce; ++i) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    auto* generic = reinterpret_cast<sockaddr*>(&from);
    UniqueFd socket(::accept4(listener_.get(), generic, &size, SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE) ::poll(nullptr, 0, kAcceptPause.count());
      return;
    }
    if (!key_ && !is_own_user(socket.get())) continue;
    const int on = 1;
    if (key_) ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    guests_.push_back(std::make_unique<Guest>(
        std::move(socket), key_ ? std::make_unique<TlsSession>(*key_) : nullptr,
        key_ ? address_text(from, size) : "this machine"));
    const auto unproved = [](const auto& guest) { return !guest->link.proved(); };
    if (std::count_if(guests_.begin(), guests_.end(), unproved) >
        static_cast<ptrdiff_t>(kMostUnproved)) {
      guests_.erase(std::find_if(guests_.begin(), guests_.end(), unproved));
    }
  }
}

// False when the guest is gone.
bool GuardedStoreServer::attend(Guest& guest) {
  bool alive = guest.link.pump();
  if (guest.link.other_secret()) note_refused(guest.address);
  while (alive && !guest.awaited) {
    const auto frame = guest.link.next_frame();
    if (!frame) break;
    const auto request = decode_request(*frame);
    alive = request && handle(guest, *request) && guest.link.pump();
  }
  if (!guest.link.proved() && Clock::now() >= guest.came + kProofLimit) alive = false;
  if (!alive) drop(guest);
  return alive;
}

void GuardedStoreServer::drop(Guest& guest) {
  for (const StoreRequest& request : guest.at_end) {
    table_.set(request.key, request.value);
  }
}

bool GuardedStoreServer::handle(Guest& guest, const StoreRequest& request) {
  StoreAnswer answer;
  switch (request.kind) {
    case StoreRequest::kSet:
      table_.set(request.key, request.value);
      break;
    case StoreRequest::kHas:
      answer.number = table_.has(request.key);
      break;
    case StoreRequest::kAdd:
      answer.number = table_.add(request.key, request.number);
      break;
    case StoreRequest::kSetAtEnd:
      guest.at_end.push_back(request);
      break;
    case StoreRequest::kGet:
      guest.awaited = request.key;
      guest.until = Clock::now() + std::clamp(milliseconds(request.number),
                                              milliseconds{0}, kLongestWait);
      return true;
  }
  guest.link.send(encode(answer));
  return true;
}

bool GuardedStoreServer::settle_wait(Guest& guest) {
  if (!guest.awaited) return true;
  StoreAnswer answer;
  answer.number = table_.has(*guest.awaited);
  if (answer.number) answer.value = table_.get(*guest.awaited, milliseconds{0});
  if (!answer.number && Clock::now() < guest.until) return true;
  guest.awaited.reset();
  guest.link.send(encode(answer));
  return attend(guest);
}

}  // namespace cohort
