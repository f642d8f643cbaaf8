// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/tcp_store.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "cohort/comm/endpoint.h"
#include "cohort/core/error.h"
#include "cohort/core/first_line.h"

namespace cohort {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;
using C10dStore = c10::intrusive_ptr<c10d::TCPStore>;

// What c10d may need beyond its own timeout to give up in good order.
constexpr milliseconds kGrace{200};

std::vector<uint8_t> to_bytes(const std::string& value) {
  return {value.begin(), value.end()};
}

C10dStore open_client(const std::string& address, int port, milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.timeout = std::max(timeout, milliseconds{1'000});
  options.waitWorkers = false;
  return c10::make_intrusive<c10d::TCPStore>(address, options);
}

}  // namespace

struct StoreServer::Impl {
  C10dStore store;
};

StoreServer::StoreServer(const std::string& address, int port) {
  silence_c10d();
  const std::string bind_to = resolve_host(address);
  Listener listener(bind_to, port);
  port_ = listener.port();
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port_);
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = listener.release();
  // The server object is its own first client.
  const std::string self = bind_to == "0.0.0.0" ? "127.0.0.1" : bind_to;
  impl_ = std::make_unique<Impl>();
  try {
    impl_->store = c10::make_intrusive<c10d::TCPStore>(self, options);
  } catch (const std::exception& error) {
    throw CommError(text("[comm.store] cannot host the store on port ", port_, ": ",
                         first_line(error.what())));
  }
}

StoreServer::~StoreServer() = default;

void StoreServer::set(const std::string& key, const std::string& value) {
  impl_->store->set(key, to_bytes(value));
}

int64_t StoreServer::add(const std::string& key, int64_t amount) {
  return impl_->store->add(key, amount);
}

int64_t StoreServer::num_keys() const { return impl_->store->getNumKeys(); }

// Runs calls one after another on its own thread, each with a deadline. c10d waits
// for an answer without one, so a frozen server would hold the caller for ever.
class TcpStore::Caller {
 public:
  Caller() : shared_(std::make_shared<Shared>()) {
    thread_ = std::thread([shared = shared_] { shared->loop(); });
  }

  ~Caller() {
    {
      std::lock_guard lock(shared_->mutex);
      shared_->stopped = true;
    }
    shared_->wake.notify_one();
    // A call that never came back keeps its thread, and what it uses, alive.
    if (lost_) {
      thread_.detach();
    } else {
      thread_.join();
    }
  }

  // The call's result, or its exception. Throws CommError at the deadline.
  template <typename Result>
  Result run(const std::string& what, milliseconds timeout,
             std::function<Result(C10dStore&)> call) {
    if (lost_) throw CommError(text("[comm.store] ", what, ": the store is lost"));
    auto task = std::make_shared<std::packaged_task<Result(C10dStore&)>>(call);
    auto result = task->get_future();
    {
      std::lock_guard lock(shared_->mutex);
      shared_->calls.push_back([task](C10dStore& store) { (*task)(store); });
    }
    shared_->wake.notify_one();
    if (result.wait_for(timeout + kGrace) != std::future_status::ready) {
      lost_ = true;
      throw CommError(text("[comm.store] ", what, ": the store gave no answer in ",
                           timeout.count(), " ms"));
    }
    try {
      return result.get();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw CommError(text("[comm.store] ", what, ": ", first_line(error.what())));
    }
  }

 private:
  struct Shared {
    void loop() {
      std::unique_lock lock(mutex);
      while (true) {
        wake.wait(lock, [&] { return stopped || !calls.empty(); });
        if (stopped) break;
        auto call = std::move(calls.front());
        calls.pop_front();
        lock.unlock();
        call(store);
        lock.lock();
      }
      lock.unlock();
      store.reset();
    }

    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::function<void(C10dStore&)>> calls;
    bool stopped = false;
    C10dStore store;  // touched by the thread alone
  };

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
  bool lost_ = false;
};

TcpStore::TcpStore(const TcpStoreOptions& options) : TcpStore(options, nullptr) {}

TcpStore::TcpStore(const TcpStoreOptions& options, std::unique_ptr<StoreServer> server)
    : options_(options), seal_(options.prefix), server_(std::move(server)) {
  silence_c10d();
  const std::string address = resolve_host(options.host);
  const std::string where = text(options.host, ":", options.port);
  const auto deadline = SteadyClock::now() + options.timeout;
  const std::string reason = await_listener(address, options.port, options.timeout);
  if (!reason.empty()) {
    throw CommError(text("[comm.store] no store at ", where, ": ", reason,
                         " (tried for ", options.timeout.count(), " ms)"));
  }
  const auto left =
      std::max(std::chrono::ceil<milliseconds>(deadline - SteadyClock::now()),
               milliseconds{100});
  caller_ = std::make_unique<Caller>();
  caller_->run<void>(text("connect to ", where), left, [=, this](C10dStore& store) {
    store = open_client(address, options.port, left);
  });
}

TcpStore::~TcpStore() = default;

void TcpStore::set(const std::string& key, const std::string& value) {
  caller_->run<void>(text("set '", key, "'"), options_.timeout,
                     [name = seal_.name(key), sealed = seal_.close(key, value)](
                         C10dStore& store) { store->set(name, to_bytes(sealed)); });
}

std::string TcpStore::get(const std::string& key, milliseconds timeout) {
  const std::string sealed = caller_->run<std::string>(
      text("get '", key, "'"), timeout,
      [name = seal_.name(key), key, timeout](C10dStore& store) -> std::string {
        const auto begin = SteadyClock::now();
        try {
          store->wait({name}, std::max(timeout, milliseconds{1}));
          const auto bytes = store->get(name);
          return {bytes.begin(), bytes.end()};
        } catch (const std::exception&) {
          if (SteadyClock::now() - begin < timeout) throw;
          throw CommError(text("[comm.store] get '", key, "': nobody set it within ",
                               timeout.count(), " ms"));
        }
      });
  return seal_.open(key, sealed);
}

bool TcpStore::has(const std::string& key) {
  return caller_->run<bool>(
      text("look for '", key, "'"), options_.timeout,
      [name = seal_.name(key)](C10dStore& store) { return store->check({name}); });
}

int64_t TcpStore::add(const std::string& key, int64_t amount) {
  return caller_->run<int64_t>(text("add to '", key, "'"), options_.timeout,
                               [name = seal_.name(key), amount](C10dStore& store) {
                                 return store->add(name, amount);
                               });
}

}  // namespace cohort
