// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cohort/comm/communicator.h"
#include "cohort/comm/nccl/nccl_library.h"

namespace cohort::nccl_backend {

// What was started on the device, as the host sees it: done or not. Once its group is
// broken, kernels end early and "done" says nothing, so the answer is kept.
class Flight {
 public:
  virtual ~Flight() = default;
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  // Asks the device. Any thread.
  virtual bool query() = 0;

  std::atomic<bool> done = false;

 protected:
  Flight() = default;
};

class NcclFamily;

struct NcclGroupOptions {
  std::chrono::milliseconds timeout{30'000};       // for calls and waits
  std::chrono::milliseconds join_timeout{60'000};  // for all ranks to come
  std::shared_ptr<NcclFamily> family;              // of its world
};

// One ncclComm over the ranks of a communicator of the host: its start, its failure and
// its end. Nothing here names CUDA.
//
// The ncclComm does not block: a call that NCCL has not settled is asked about until it
// has, so that every wait has a deadline and hears of an abort. After the first failure
// the group is broken for good, and its ncclComm ends on a thread of its own: that of
// captured work ends only with the graphs, which their owner drops when it hears of it.
//
// Thread safety: as Communicator: one thread at a time, but for abort().
class NcclGroup {
 public:
  // Collective: all ranks of `host` come here. The GPU is the current one.
  NcclGroup(std::shared_ptr<const Library> library, std::shared_ptr<Communicator> host,
            const NcclGroupOptions& options);
  // Ends the ncclComm in bounded time, whoever of its peers is left.
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  using Call = std::function<Result(const Library&, Handle)>;

  // Makes a call of NCCL and returns when it is enqueued: the first ones between two
  // ranks wait for the other to make its own. Throws CommError.
  void start(const std::string& what, const Call& call);

  // From now on an abort() asks for `flight` before it is too late.
  void watch(const std::shared_ptr<Flight>& flight);

  // Blocks until it is done. Throws CommError, also where that takes `times` as long as
  // a call may.
  void wait(const std::string& what, Flight& flight, int times = 1);
  // True also when wait() would throw.
  bool poll(Flight& flight);

  // Throws CommError if the group is broken.
  void check(const std::string& what);

  // Any thread. The first reason stays.
  void abort(const std::string& reason);

 private:
  using Clock = std::chrono::steady_clock;

  void connect();
  void settle(const std::string& what, Result result, Clock::time_point deadline);
  Result async_error();
  void check_host(const std::string& what);
  bool farewell();
  void end_comm();
  void wait_for_end();
  [[noreturn]] void fail(const std::string& what, const std::string& why);
  std::string cause_by_host();
  std::string describe(Result result) const;
  std::string named(const std::string& what, const std::string& why) const;

  std::shared_ptr<const Library> library_;
  std::shared_ptr<Communicator> host_;
  NcclGroupOptions options_;

  std::mutex calls_;  // of NCCL; held for moments only
  Handle handle_ = nullptr;
  std::future<void> ended_;

  std::mutex flights_mutex_;  // guards what follows
  std::vector<std::shared_ptr<Flight>> flights_;
  std::string reason_;
  std::atomic<bool> broken_ = false;  // written last
};

}  // namespace cohort::nccl_backend
