// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "cohort/communicator.h"

namespace cohort::relay_backend {

// A thread that makes calls on a communicator of the host, one after the other in the
// order in which they were asked for, each when its tensors are there. It sleeps while
// there is nothing to do.
//
// `done` is the number of the last call that is over, in memory that lanes read. The
// first failure ends the thread, and is told to `fail`.
//
// Thread safety: one thread asks; any thread gives tensors and stops.
class RelayThread {
 public:
  using HostCall = std::function<Work(Communicator& comm)>;

  RelayThread(std::unique_ptr<Communicator> comm, uint64_t* done,
              std::function<void(const std::string& reason)> fail);
  ~RelayThread() { end(); }
  RelayThread(const RelayThread&) = delete;
  RelayThread& operator=(const RelayThread&) = delete;

  // A call that was asked for: its number, from 1 on, and what says that its tensors
  // are there. That may outlive the thread, which then does nothing.
  struct Ticket {
    uint64_t number;
    std::function<void()> give;
  };
  Ticket ask(HostCall call);

  // No call begins any more, the one under way is given up, and then what awaits
  // `done` goes on, now and later: not before, for peers may still read what it gives.
  // What it finds means nothing.
  void stop(const std::string& reason);

  // Nobody asks any more: returns when the thread has ended, which is soon where no
  // call is under way, and after a stop().
  void end();

 private:
  struct Asked {
    uint64_t number;
    HostCall call;
    bool given;
  };

  // What lanes hold on to.
  struct Queue {
    std::mutex mutex;  // guards what follows
    std::condition_variable changed;
    std::deque<Asked> asked;
    bool ends = false;     // it was stopped, or nobody asks any more
    bool stopped = false;  // `done` is past all numbers, or will be behind the call
    bool calls = false;    // a call is under way
  };

  void run();
  bool next(Asked& asked);
  void leave_call(uint64_t number);

  std::unique_ptr<Communicator> comm_;
  uint64_t* const done_;
  const std::function<void(const std::string&)> fail_;
  uint64_t asked_ = 0;
  std::shared_ptr<Queue> queue_;
  std::thread thread_;  // the last: it uses all of the others
};

}  // namespace cohort::relay_backend
