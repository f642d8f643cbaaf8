// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/guarded_store.h"

#include <poll.h>

#include <algorithm>

#include "cohort/comm/endpoint.h"
#include "cohort/comm/store_socket.h"
#include "cohort/core/error.h"

namespace cohort {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

constexpr milliseconds kConnectLimit{1'000};  // callers try again

// Until `link` has something to do; false when the deadline has passed.
bool await_link(const StoreLink& link, SteadyClock::time_point deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - SteadyClock::now());
  if (left.count() <= 0) return false;
  pollfd event{link.fd(), link.events(), 0};
  ::poll(&event, 1, static_cast<int>(std::min<int64_t>(left.count(), 1'000)));
  return true;
}

}  // namespace

std::string socket_name(const StoreDoor& door) {
  return text("cohort-meeting-1/", door.address, ":", door.port);
}

GuardedStore::GuardedStore(const StoreDoor& door, milliseconds timeout)
    : where_(text(door.address, ":", door.port)), timeout_(timeout) {
  if (door.secret.empty()) {
    UniqueFd socket = connect_on_this_machine(socket_name(door));
    if (!socket) throw NobodyThere(text("[comm.store] no agent's store at ", where_));
    if (!is_own_user(socket.get())) {
      throw ConfigError(text("[comm.store] ", where_,
                             " is in use by another user; legal: a port",
                             " that is free"));
    }
    link_ = std::make_unique<StoreLink>(std::move(socket), nullptr);
    return;
  }
  std::string reason;
  UniqueFd socket =
      connect_to(door.address, door.port, std::min(timeout, kConnectLimit), reason);
  if (!socket) {
    throw NobodyThere(text("[comm.store] no store at ", where_, ": ", reason));
  }
  key_ = std::make_unique<TlsKey>(door.secret, TlsKey::Side::kClient);
  link_ = std::make_unique<StoreLink>(std::move(socket),
                                      std::make_unique<TlsSession>(*key_));
  greet(timeout);
  has("");  // the server has seen the last word of the proof only when it answers
}

void GuardedStore::greet(milliseconds timeout) {
  const auto deadline = SteadyClock::now() + timeout;
  while (link_->pump() && !link_->proved()) {
    if (await_link(*link_, deadline)) continue;
    throw NobodyThere(text("[comm.store] ", where_, " accepted a connection, and gave",
                           " no answer in ", timeout.count(), " ms"));
  }
  if (link_->proved()) return;
  if (link_->other_secret()) {
    throw ConfigError(text("[comm.store] the agent at ", where_,
                           " has another rendezvous token; legal: the same",
                           " --rdzv-token on every node"));
  }
  throw NobodyThere(
      text("[comm.store] ", where_, " does not speak as an agent's store"));
}

StoreAnswer GuardedStore::ask(const StoreRequest& request, milliseconds extra) {
  const auto lost = [&](auto&&... why) {
    link_.reset();
    throw CommError(text("[comm.store] '", request.key, "' of the store at ", where_,
                         ": ", why...));
  };
  if (!link_) lost("the store is lost");
  link_->send(encode(request));
  const auto deadline = SteadyClock::now() + timeout_ + extra;
  for (;;) {
    const bool alive = link_->pump();
    if (const auto frame = link_->next_frame()) {
      if (const auto answer = decode_answer(*frame)) return *answer;
      lost("it gave no answer that we know");
    }
    if (!alive) lost("the connection is closed");
    if (!await_link(*link_, deadline)) {
      lost("no answer in ", (timeout_ + extra).count(), " ms");
    }
  }
}

void GuardedStore::set(const std::string& key, const std::string& value) {
  ask({StoreRequest::kSet, 0, key, value}, milliseconds{0});
}

std::string GuardedStore::get(const std::string& key, milliseconds timeout) {
  const StoreAnswer answer =
      ask({StoreRequest::kGet, timeout.count(), key, {}}, timeout);
  if (answer.number == 0) {
    throw CommError(text("[comm.store] get '", key, "': nobody set it within ",
                         timeout.count(), " ms"));
  }
  return answer.value;
}

bool GuardedStore::has(const std::string& key) {
  return ask({StoreRequest::kHas, 0, key, {}}, milliseconds{0}).number != 0;
}

int64_t GuardedStore::add(const std::string& key, int64_t amount) {
  return ask({StoreRequest::kAdd, amount, key, {}}, milliseconds{0}).number;
}

void GuardedStore::set_at_end(const std::string& key, const std::string& value) {
  ask({StoreRequest::kSetAtEnd, 0, key, value}, milliseconds{0});
}

}  // namespace cohort
