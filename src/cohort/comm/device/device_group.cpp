// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/device/device_group.h"

#include <exception>

#include "cohort/comm/device/device_family.h"
#include "cohort/comm/device/patience.h"
#include "cohort/core/error.h"
#include "cohort/core/first_line.h"

namespace cohort::device_comm {
namespace {

// For peers to say over the host why they are not there.
constexpr auto kCausePatience = std::chrono::seconds(1);

std::string seconds_text(std::chrono::milliseconds time) {
  return text(static_cast<double>(time.count()) / 1000, " s");
}

}  // namespace

std::string first_line_of(const char* message) {
  return first_line(message ? message : "");
}

DeviceGroup::DeviceGroup(std::shared_ptr<Communicator> host, std::string name,
                         const DeviceGroupOptions& options)
    : host_(std::move(host)), name_(std::move(name)), options_(options) {}

void DeviceGroup::enter(const std::string& what) {
  {
    const std::lock_guard lock(flights_mutex_);
    in_call_ = !broken_;
  }
  check(what);
}

void DeviceGroup::leave(std::shared_ptr<Flight> end) {
  const std::lock_guard lock(flights_mutex_);
  in_call_ = false;
  if (end) last_ = std::move(end);
}

void DeviceGroup::watch(const std::shared_ptr<Flight>& flight) {
  const std::lock_guard lock(flights_mutex_);
  std::erase_if(flights_, [](const auto& other) { return other.use_count() == 1; });
  flights_.push_back(flight);
}

void DeviceGroup::wait(const std::string& what, Flight& flight, int times) {
  const auto limit = options_.timeout * times;
  const auto deadline = Clock::now() + limit;
  Pause pause;
  Seldom seldom;
  while (!poll(flight)) {
    if (Clock::now() > deadline)
      fail(what, text("not done after ", seconds_text(limit)));
    if (const std::string why = fault(); !why.empty()) fail(what, why);
    if (seldom.due()) check_host(what);
    pause.take();
  }
  if (flight.done) return;
  check(what);
  // It landed, behind something of another group that was made to end early.
  abort(family_->why_stopped());
  check(what);
}

bool DeviceGroup::poll(Flight& flight) {
  if (flight.done) return true;
  // Under the mutex, or an abort() could end the kernels between the two questions.
  const std::unique_lock lock(flights_mutex_, std::try_to_lock);
  if (!lock) return false;
  if (broken_) return true;
  if (!flight.query()) return false;
  // Asked in this order: whatever ends early does so after the family is stopped.
  flight.done = !family_ || family_->why_stopped().empty();
  return true;
}

void DeviceGroup::check(const std::string& what) {
  if (!broken_) return;
  const std::lock_guard lock(flights_mutex_);
  throw CommError(named(what, reason_));
}

std::string DeviceGroup::reason() {
  const std::lock_guard lock(flights_mutex_);
  return reason_;
}

int DeviceGroup::lost_peer() const {
  return family_ ? family_->processes().lost() : -1;
}

std::string DeviceGroup::loss(const std::string& what) const {
  const int lost = lost_peer();
  if (lost < 0) return "";
  return named(what, text("the process of rank ", lost, " of the world has ended"));
}

void DeviceGroup::check_host(const std::string& what) {
  ask_host(what, /*moves=*/true);
  const std::string why = loss(what);
  if (why.empty()) return;
  abort(why);
  check(what);
}

// A call that names no rank is made by this one alone.
void DeviceGroup::ask_host(const std::string& what, bool moves) {
  try {
    Work alone = host_->exchange({}, {});
    if (moves) alone.poll();
    alone.wait();
  } catch (const CommError& error) {
    abort(error.what());
    check(what);
  }
}

void DeviceGroup::abort(const std::string& reason) {
  const bool was_meant = !family_ || family_->why_stopped().empty();
  if (family_) family_->stop(reason);
  {
    const std::lock_guard lock(flights_mutex_);
    if (broken_) return;
    reason_ = reason;
    for (const auto& flight : flights_) {
      if (!was_meant) break;  // what has landed says nothing
      try {
        if (flight.use_count() > 1 && flight->query()) flight->done = true;
      } catch (const std::exception&) {
        // CUDA is of no use any more: it was not done.
      }
    }
    broken_ = true;
  }
  host_->abort(reason);
  on_broken();
}

// The device knows that something is wrong; over the host ranks may tell which is
// missing.
void DeviceGroup::fail(const std::string& what, const std::string& why) {
  std::string cause = broken_ ? "" : loss(what);
  if (!broken_ && cause.empty()) cause = cause_by_host();
  // The sockets of a process close before it has ended.
  if (!broken_ && cause.empty()) cause = loss(what);
  abort(cause.empty() ? named(what, why) : cause);
  check(what);
  throw BugError(text("[", name_, "] a broken group is not broken"));
}

std::string DeviceGroup::cause_by_host() {
  Work gate;
  std::string cause;
  try {
    gate = host_->barrier();
    Pause pause;
    const auto deadline = Clock::now() + kCausePatience;
    while (!gate.poll() && Clock::now() < deadline) pause.take();
    if (gate.poll()) gate.wait();
  } catch (const CommError& error) {
    cause = error.what();
  }
  // What is left of it is dropped, and must not be waited for.
  host_->abort(cause.empty() ? "its tensors of the GPU did not arrive" : cause);
  return cause;
}

bool DeviceGroup::lands_all(Clock::time_point deadline) {
  Pause pause;
  for (const auto& flight : flights_) {
    while (!poll(*flight)) {
      if (Clock::now() > deadline) return false;
      pause.take();
    }
  }
  return true;
}

bool DeviceGroup::is_quiet() {
  const std::lock_guard lock(flights_mutex_);
  if (in_call_) return false;
  try {
    return !last_ || last_->query();
  } catch (const std::exception&) {
    return true;  // CUDA is of no use any more
  }
}

std::string DeviceGroup::named(const std::string& what, const std::string& why) const {
  if (why.rfind("[comm.", 0) == 0) return why;  // it has all that yet
  return text("[", name_, "] ", what, ": ", why, " (rank ", host_->rank(), " of ",
              host_->size(), ")");
}

}  // namespace cohort::device_comm
