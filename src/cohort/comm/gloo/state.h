// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "cohort/comm/gloo/group.h"
#include "cohort/comm/gloo/notes.h"
#include "cohort/work.h"

namespace cohort::gloo_backend {

// A group and how it is: shared by a communicator and its operations in flight.
// Thread safe.
class State {
 public:
  State(c10::intrusive_ptr<c10d::Backend> group, Notes notes)
      : group_(std::move(group)), notes_(std::move(notes)) {}

  int rank() const { return group_->getRank(); }
  int size() const { return group_->getSize(); }

  // Notes the beginning of an operation, given what ranks must agree on; throws
  // CommError if the group is broken.
  Record begin(Record record);

  // Calls c10d. An exception of it breaks the group and becomes a CommError.
  template <typename Call>
  auto start(const Record& record, Call call) {
    try {
      std::lock_guard lock(group_mutex_);
      tag_next(*group_, fingerprint(record));
      return call(*group_);
    } catch (const std::exception& error) {
      fail(record, error.what());
      raise(record);
    }
  }

  // Breaks the group, once: the first cause counts. Closes all connections and
  // tells the store.
  void fail(const Record& record, const std::string& what) noexcept;
  void abort(const std::string& reason) noexcept;
  bool broken() const { return broken_; }

  // Throws CommError with what is known of the first cause.
  [[noreturn]] void raise(const Record& record);

 private:
  std::mutex group_mutex_;  // around calls of c10d, which has none
  c10::intrusive_ptr<c10d::Backend> group_;
  std::atomic<bool> broken_{false};
  std::mutex mutex_;  // guards what follows
  Notes notes_;
  std::string what_;
  std::string cause_;
  bool cause_known_ = false;
  uint64_t num_collectives_ = 0;
  uint64_t num_exchanges_ = 0;  // apart: not all ranks take part
};

// A collective, run by the group's own thread.
class CollectiveOperation : public Operation {
 public:
  // `finish` runs in wait(), after success.
  CollectiveOperation(std::shared_ptr<State> state, const Record& record,
                      c10::intrusive_ptr<c10d::Work> work,
                      std::function<void()> finish);
  void wait() override;
  bool poll() override;

 private:
  std::shared_ptr<State> state_;
  Record record_;
  c10::intrusive_ptr<c10d::Work> work_;
  std::function<void()> finish_;
};

// Sends and receives. c10d can wait for them but not ask: the first poll() of one
// that is not waited for starts a thread which waits.
class ExchangeOperation : public Operation {
 public:
  ExchangeOperation(std::shared_ptr<State> state, const Record& record,
                    std::vector<c10::intrusive_ptr<c10d::Work>> works,
                    std::function<void()> finish);
  ~ExchangeOperation() override;
  void wait() override;
  bool poll() override;

 private:
  void await_works() noexcept;

  std::shared_ptr<State> state_;
  Record record_;
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
  std::function<void()> finish_;
  bool failed_ = false;  // read when it is done
  std::atomic<bool> done_{false};
  std::thread waiter_;
};

}  // namespace cohort::gloo_backend
