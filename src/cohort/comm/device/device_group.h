// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cohort/comm/device/device_call.h"
#include "cohort/comm/device/flight.h"
#include "cohort/communicator.h"

namespace cohort::device_comm {

class DeviceFamily;

using Stream = void*;  // cudaStream_t

struct DeviceGroupOptions {
  std::chrono::milliseconds timeout{30'000};       // for calls and waits
  std::chrono::milliseconds join_timeout{60'000};  // for all ranks to come
};

// Errors of libraries may have many; null: nothing.
std::string first_line_of(const char* message);

// The device's side of a group of ranks, beside their communicator of the host: what is
// under way on the device, its deadlines and its failure. Nothing here names CUDA.
//
// After the first failure the group is broken for good.
//
// Thread safety: as Communicator: one thread at a time, but for abort().
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;

  // A call in `lane`, which is the current stream while it is used.
  virtual std::unique_ptr<DeviceCall> call(const std::string& what, Stream lane) = 0;

  // Whether calls of different lanes follow one another by themselves. Otherwise
  // what makes them sees to that.
  virtual bool orders_lanes() const = 0;

  // Around each call: enter() throws CommError if the group is broken; leave() has the
  // end of what the call, also one that threw, has started. Null: it is captured.
  void enter(const std::string& what);
  void leave(std::shared_ptr<Flight> end);

  // From now on an abort() asks for `flight` before it is too late.
  void watch(const std::shared_ptr<Flight>& flight);

  // Blocks until it is done. Throws CommError, also where that takes `times` as long as
  // a call may, and where another group of its family has been ended meanwhile.
  void wait(const std::string& what, Flight& flight, int times = 1);
  // True also when wait() would throw.
  bool poll(Flight& flight);

  // Throws CommError if the group is broken.
  void check(const std::string& what);

  // Any thread. The first reason stays.
  void abort(const std::string& reason);

  // Before its first call: all groups of one world hear of the end of one of them.
  void belong_to(std::shared_ptr<DeviceFamily> family) { family_ = std::move(family); }

 protected:
  using Clock = std::chrono::steady_clock;

  // `name` is what begins its errors: "comm.nccl".
  DeviceGroup(std::shared_ptr<Communicator> host, std::string name,
              const DeviceGroupOptions& options);

  Communicator& host() const { return *host_; }
  const DeviceGroupOptions& options() const { return options_; }
  bool is_broken() const { return broken_; }
  // Why it is broken.
  std::string reason();

  // What the device's side has noticed by itself, asked for while a rank waits.
  virtual std::string fault() { return ""; }
  // Ends what is under way on the device; called once, by any thread.
  virtual void on_broken() = 0;

  // Breaks this group and throws where a peer has aborted the host's. The first also
  // looks for peers that are gone, moves what the host's group has outstanding, and is
  // a sign of progress.
  void check_host(const std::string& what);
  void hear_host(const std::string& what) { ask_host(what, /*moves=*/false); }
  // A rank of the world whose process is gone; -1: none is known of.
  int lost_peer() const;
  [[noreturn]] void fail(const std::string& what, const std::string& why);
  // Whether all that is watched is done before the deadline.
  bool lands_all(Clock::time_point deadline);
  // Nothing that a call has started is under way. Any thread.
  bool is_quiet();

 private:
  void ask_host(const std::string& what, bool moves);
  std::string cause_by_host();
  std::string loss(const std::string& what) const;  // empty: no peer is lost
  std::string named(const std::string& what, const std::string& why) const;

  std::shared_ptr<Communicator> host_;
  std::string name_;
  DeviceGroupOptions options_;
  std::shared_ptr<DeviceFamily> family_;

  std::mutex flights_mutex_;  // guards what follows
  std::vector<std::shared_ptr<Flight>> flights_;
  std::shared_ptr<Flight> last_;
  bool in_call_ = false;
  std::string reason_;
  std::atomic<bool> broken_ = false;  // written last
};

}  // namespace cohort::device_comm
