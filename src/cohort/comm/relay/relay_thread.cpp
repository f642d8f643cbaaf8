// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/relay/relay_thread.h"

#include <atomic>
#include <exception>
#include <limits>

namespace cohort::relay_backend {
namespace {

// A lane compares by the sign of the difference, so not the largest of all numbers.
constexpr uint64_t kAllCalls = std::numeric_limits<int64_t>::max();

void store_done(uint64_t* done, uint64_t number) {
  std::atomic_ref(*done).store(number, std::memory_order_release);
}

}  // namespace

RelayThread::RelayThread(std::unique_ptr<Communicator> comm, uint64_t* done,
                         std::function<void(const std::string&)> fail)
    : comm_(std::move(comm)),
      done_(done),
      fail_(std::move(fail)),
      queue_(std::make_shared<Queue>()),
      thread_([this] { run(); }) {}

void RelayThread::end() {
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->ends = true;
  }
  queue_->changed.notify_all();
  if (thread_.joinable()) thread_.join();
}

RelayThread::Ticket RelayThread::ask(HostCall call) {
  const uint64_t number = ++asked_;
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->asked.push_back({number, std::move(call), /*given=*/false});
  }
  const auto give = [queue = queue_, number] {
    const std::lock_guard lock(queue->mutex);
    for (Asked& asked : queue->asked) asked.given |= asked.number == number;
    queue->changed.notify_all();
  };
  return {number, give};
}

void RelayThread::stop(const std::string& reason) {
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->ends = queue_->stopped = true;
  }
  queue_->changed.notify_all();
  comm_->abort(reason);
  const std::lock_guard lock(queue_->mutex);
  if (!queue_->calls) store_done(done_, kAllCalls);
}

// False: it is over.
bool RelayThread::next(Asked& asked) {
  std::unique_lock lock(queue_->mutex);
  auto& waiting = queue_->asked;
  queue_->changed.wait(lock, [&] {
    return queue_->ends || (!waiting.empty() && waiting.front().given);
  });
  if (queue_->ends) return false;
  asked = std::move(waiting.front());
  waiting.pop_front();
  queue_->calls = true;
  return true;
}

void RelayThread::leave_call(uint64_t number) {
  const std::lock_guard lock(queue_->mutex);
  queue_->calls = false;
  store_done(done_, queue_->stopped ? kAllCalls : number);
}

void RelayThread::run() {
  Asked asked;
  while (next(asked)) {
    try {
      asked.call(*comm_).wait();
    } catch (const std::exception& error) {
      leave_call(asked.number - 1);
      return fail_(error.what());
    }
    leave_call(asked.number);
    asked.call = nullptr;  // with the tensors that it holds
  }
}

}  // namespace cohort::relay_backend
