// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

namespace cohort {

// One operation in flight, as a backend sees it.
class Operation {
 public:
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Blocks the host until the operation is finished. Throws CommError. Called
  // at most once.
  virtual void wait() = 0;

  // Lets the operation, and what its thread has outstanding in other groups of the
  // same world, move on without blocking; true when wait() would return at once. A
  // failure also counts as finished: wait() then throws it.
  virtual bool poll() = 0;

 protected:
  Operation() = default;
};

// A handle to an operation in flight. Its tensors belong to the operation until
// wait() returns. A Work that is dropped unfinished is waited for first, and an
// error is then lost: so do not drop it.
class [[nodiscard]] Work {
 public:
  Work() = default;  // finished already
  explicit Work(std::unique_ptr<Operation> operation)
      : operation_(std::move(operation)) {}
  Work(Work&&) = default;
  Work& operator=(Work&& other) {
    finish();
    operation_ = std::move(other.operation_);
    return *this;
  }
  ~Work() { finish(); }

  // Blocks the host. Throws CommError if a peer is lost, late, or out of step. What was
  // done before its group broke is done all the same.
  void wait() {
    if (auto operation = std::move(operation_)) operation->wait();
  }

  // False for one that was done when it was made.
  bool in_flight() const { return operation_ != nullptr; }

  // True when wait() would return at once.
  bool poll() { return !operation_ || operation_->poll(); }

 private:
  void finish() noexcept {
    try {
      wait();
    } catch (...) {
    }
  }

  std::unique_ptr<Operation> operation_;
};

}  // namespace cohort
