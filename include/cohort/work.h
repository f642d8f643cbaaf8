// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

namespace [[gnu::visibility("default")]] cohort {

// One operation in flight, as a backend sees it: a backend derives its own from this
// and hands them out as Work. A program has no need of it.
//
// Only Work calls it, in the thread that uses the group, one call at a time: poll() and
// join() any number of times, then wait() at most once, then the destructor. It may be
// destroyed without wait() where join() was called. Failure: wait(), and a join() that
// is as by default, throw CommError; poll() keeps it for wait().
class Operation {
 public:
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Blocks the host until the operation is finished.
  virtual void wait() = 0;

  // Lets the operation, and what its thread has outstanding in other groups of the
  // same world, move on without blocking; true when wait() would return at once. A
  // failure also counts as finished: wait() then throws it.
  virtual bool poll() = 0;

  // Later work of the current lane (on a GPU: the calling thread's current stream)
  // begins when the operation is finished; the host waits only where it has to. True
  // when it did, as by default: then wait() is over, with what it throws.
  virtual bool join() {
    wait();
    return true;
  }

 protected:
  Operation() = default;
};

// A handle to an operation in flight, which a Communicator gives for each of its calls.
// Wait for it or join it, in the order you like, before the Communicator goes.
//
// Memory: its tensors belong to the operation until wait() returns, or, once it is
// joined, until what follows it in that lane is done. A Work that is dropped neither
// finished nor joined is waited for first, and an error is then lost: so do not drop
// it.
//
// Thread safety: as its Communicator, whose calls these are: one thread at a time.
class [[nodiscard]] Work {
 public:
  Work() = default;  // finished already
  explicit Work(std::unique_ptr<Operation> operation)
      : operation_(std::move(operation)) {}
  Work(Work&& other) noexcept
      : operation_(std::move(other.operation_)),
        joined_(std::exchange(other.joined_, false)) {}
  Work& operator=(Work&& other) {
    finish();
    operation_ = std::move(other.operation_);
    joined_ = std::exchange(other.joined_, false);
    return *this;
  }
  ~Work() { finish(); }

  // Blocks the host. Throws CommError if a peer is lost, late, or out of step. What was
  // done before its group broke is done all the same.
  void wait() {
    if (auto operation = std::move(operation_)) operation->wait();
  }

  // Orders later work of the current lane behind the operation, in place of the host.
  // wait() stays possible, and is then the only one to tell of a failure.
  void join() {
    if (!operation_) return;
    joined_ = true;
    if (operation_->join()) operation_.reset();
  }

  // False for one that was done when it was made.
  bool in_flight() const { return operation_ != nullptr; }

  // True when wait() would return at once.
  bool poll() { return !operation_ || operation_->poll(); }

 private:
  void finish() noexcept {
    if (joined_) return;
    try {
      wait();
    } catch (...) {
    }
  }

  std::unique_ptr<Operation> operation_;
  bool joined_ = false;
};

}  // namespace cohort
