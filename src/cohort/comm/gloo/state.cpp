// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/gloo/state.h"

#include <cstring>

#include "cohort/core/error.h"
#include "cohort/core/first_line.h"

namespace cohort::gloo_backend {
namespace {

// The first line, without gloo's "[/path/pair.cc:547] ".
std::string tidy(const std::string& what) {
  std::string line = first_line(what);
  const size_t end = line.find("] ");
  if (line.starts_with("[/") && end != std::string::npos) line.erase(0, end + 2);
  return line;
}

}  // namespace

Record State::begin(Record record) {
  const bool collective = std::strcmp(record.op, "exchange") != 0;
  record.sequence = collective ? ++num_collectives_ : ++num_exchanges_;
  record.started = std::chrono::steady_clock::now();
  if (broken_) raise(record);
  return record;
}

void State::fail(const Record& record, const std::string& what) noexcept {
  std::lock_guard lock(mutex_);
  if (broken_.exchange(true)) return;
  what_ = tidy(what);
  {
    std::lock_guard group_lock(group_mutex_);
    close_connections(*group_);
  }
  notes_.publish_failure(record);
}

void State::abort(const std::string& reason) noexcept {
  std::lock_guard lock(mutex_);
  if (broken_.exchange(true)) return;
  cause_ = text("aborted by rank ", rank(), ": ", reason);
  cause_known_ = true;
  notes_.publish_abort(reason);
  std::lock_guard group_lock(group_mutex_);
  close_connections(*group_);
}

void State::raise(const Record& record) {
  std::lock_guard lock(mutex_);
  if (!cause_known_) cause_ = notes_.find_cause(record);
  cause_known_ = true;
  throw CommError(text("[comm.gloo] ", describe(record), ": ", cause_,
                       cause_.empty() || what_.empty() ? "" : ": ", what_, " (rank ",
                       rank(), " of ", size(), ")"));
}

CollectiveOperation::CollectiveOperation(std::shared_ptr<State> state,
                                         const Record& record,
                                         c10::intrusive_ptr<c10d::Work> work,
                                         std::function<void()> finish)
    : state_(std::move(state)),
      record_(record),
      work_(std::move(work)),
      finish_(std::move(finish)) {
  // On the group's thread, before wait() can return: peers learn of a failure at
  // once, even while this rank computes.
  work_->getFuture()->addCallback(
      [watched = std::weak_ptr(state_), record](c10::ivalue::Future& future) {
        if (!future.hasError()) return;
        if (auto state = watched.lock()) {
          state->fail(record, future.tryRetrieveErrorMessage());
        }
      });
}

void CollectiveOperation::wait() {
  try {
    work_->wait();
  } catch (const std::exception& error) {
    state_->fail(record_, error.what());
    state_->raise(record_);
  }
  if (finish_) finish_();  // done, though the group may be broken since
}

bool CollectiveOperation::poll() { return work_->isCompleted(); }

ExchangeOperation::ExchangeOperation(std::shared_ptr<State> state, const Record& record,
                                     std::vector<c10::intrusive_ptr<c10d::Work>> works,
                                     std::function<void()> finish)
    : state_(std::move(state)),
      record_(record),
      works_(std::move(works)),
      finish_(std::move(finish)) {}

ExchangeOperation::~ExchangeOperation() {
  if (waiter_.joinable()) waiter_.join();
}

void ExchangeOperation::await_works() noexcept {
  for (auto& work : works_) {
    try {
      work->wait();
    } catch (const std::exception& error) {
      state_->fail(record_, error.what());
      failed_ = true;
    }
  }
  done_ = true;
}

void ExchangeOperation::wait() {
  if (waiter_.joinable()) {
    waiter_.join();
  } else {
    await_works();
  }
  if (failed_) state_->raise(record_);
  if (finish_) finish_();
}

bool ExchangeOperation::poll() {
  if (!waiter_.joinable()) waiter_ = std::thread([this] { await_works(); });
  return done_;
}

}  // namespace cohort::gloo_backend
