// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/nccl/nccl_group.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <system_error>
#include <thread>

#include "cohort/comm/nccl/nccl_family.h"
#include "cohort/core/error.h"

namespace cohort::nccl_backend {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

// How long the end of an ncclComm may hold its rank up when its group goes.
constexpr auto kEndPatience = 5s;
// For peers to say over the host why they are not there.
constexpr auto kCausePatience = 1s;

// Sleeps a little longer each time, up to a twentieth of a millisecond.
class Pause {
 public:
  void take() {
    if (++taken_ < 200)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(50us);
  }

 private:
  int taken_ = 0;
};

// True every now and then: what costs more than a look is asked no more often.
class Seldom {
 public:
  bool due() {
    const auto now = SteadyClock::now();
    if (now < next_) return false;
    next_ = now + 20ms;
    return true;
  }

 private:
  SteadyClock::time_point next_ = SteadyClock::now() + 20ms;
};

// Runs `work` on another thread, which nobody has to wait for.
std::future<void> run_apart(const std::function<void()>& work) {
  auto done = std::make_shared<std::promise<void>>();
  auto ended = done->get_future();
  const auto act = [work, done] {
    work();
    done->set_value();
  };
  try {
    std::thread(act).detach();
  } catch (const std::system_error&) {
    act();  // no thread is to be had
  }
  return ended;
}

std::string first_line_of(const char* message) {
  const std::string all = message ? message : "";
  return all.substr(0, all.find('\n'));
}

std::string seconds_text(std::chrono::milliseconds time) {
  return text(static_cast<double>(time.count()) / 1000, " s");
}

}  // namespace

NcclGroup::NcclGroup(std::shared_ptr<const Library> library,
                     std::shared_ptr<Communicator> host,
                     const NcclGroupOptions& options)
    : library_(std::move(library)), host_(std::move(host)), options_(options) {
  try {
    connect();
  } catch (...) {
    end_comm();  // no destructor runs
    wait_for_end();
    throw;
  }
}

NcclGroup::~NcclGroup() {
  if (broken_ || std::uncaught_exceptions() > 0 || !farewell()) end_comm();
  wait_for_end();
}

void NcclGroup::connect() {
  const std::string what = "connect";
  const auto deadline = Clock::now() + options_.join_timeout;
  UniqueId id{};
  Tensor bytes = at::zeros({static_cast<int64_t>(sizeof(id.bytes))}, at::kByte);
  Result result = kSuccess;
  if (host_->rank() == 0) {
    result = library_->GetUniqueId(&id);
    std::memcpy(bytes.mutable_data_ptr(), id.bytes, sizeof(id.bytes));
  }
  if (result != kSuccess) fail(what, describe(result));
  host_->broadcast(bytes, 0).wait();
  std::memcpy(id.bytes, bytes.const_data_ptr(), sizeof(id.bytes));
  {
    const std::lock_guard lock(calls_);
    Config config;
    result = library_->CommInitRankConfig(&handle_, host_->size(), id, host_->rank(),
                                          &config);
  }
  settle(what, result, deadline);
}

void NcclGroup::start(const std::string& what, const Call& call) {
  check(what);
  Result result = kSuccess;
  {
    const std::lock_guard lock(calls_);
    if (handle_) result = call(*library_, handle_);
  }
  settle(what, result, Clock::now() + options_.timeout);
}

// Until NCCL has enqueued what it was asked for, it must not be asked for more.
void NcclGroup::settle(const std::string& what, Result result,
                       Clock::time_point deadline) {
  Pause pause;
  Seldom seldom;
  while (true) {
    check(what);
    if (result != kSuccess && result != kInProgress) fail(what, describe(result));
    result = async_error();
    if (result == kSuccess) break;
    if (Clock::now() > deadline) fail(what, "not all of its ranks came in time");
    if (seldom.due()) check_host(what);
    pause.take();
  }
  check(what);
}

Result NcclGroup::async_error() {
  // Whoever holds it longer than a moment ends the ncclComm.
  const std::unique_lock lock(calls_, std::try_to_lock);
  if (!lock) return kInProgress;
  if (!handle_) return kSuccess;  // broken, as check() says
  Result state = kSuccess;
  const Result asked = library_->CommGetAsyncError(handle_, &state);
  return asked == kSuccess ? state : asked;
}

void NcclGroup::watch(const std::shared_ptr<Flight>& flight) {
  const std::lock_guard lock(flights_mutex_);
  std::erase_if(flights_, [](const auto& other) { return other.use_count() == 1; });
  flights_.push_back(flight);
}

void NcclGroup::wait(const std::string& what, Flight& flight, int times) {
  const auto limit = options_.timeout * times;
  const auto deadline = Clock::now() + limit;
  Pause pause;
  Seldom seldom;
  while (!poll(flight)) {
    if (Clock::now() > deadline)
      fail(what, text("not done after ", seconds_text(limit)));
    if (const Result result = async_error();
        result != kSuccess && result != kInProgress)
      fail(what, describe(result));
    if (seldom.due()) check_host(what);
    pause.take();
  }
  if (!flight.done) check(what);
}

bool NcclGroup::poll(Flight& flight) {
  if (flight.done) return true;
  // Under the mutex, or an abort() could end the kernels between the two questions.
  const std::unique_lock lock(flights_mutex_, std::try_to_lock);
  if (!lock) return false;
  if (broken_) return true;
  if (flight.query()) flight.done = true;
  return flight.done;
}

void NcclGroup::check(const std::string& what) {
  if (!broken_) return;
  const std::lock_guard lock(flights_mutex_);
  throw CommError(named(what, reason_));
}

// A call that names no rank is made by this one alone: it moves what the host's group
// has outstanding, is a sign of progress, and throws if a peer has aborted that group.
void NcclGroup::check_host(const std::string& what) {
  try {
    Work alone = host_->exchange({}, {});
    alone.poll();
    alone.wait();
  } catch (const CommError& error) {
    abort(error.what());
    check(what);
  }
}

void NcclGroup::abort(const std::string& reason) {
  if (options_.family) options_.family->stop();
  {
    const std::lock_guard lock(flights_mutex_);
    if (broken_) return;
    reason_ = reason;
    for (const auto& flight : flights_) {
      try {
        if (flight.use_count() > 1 && flight->query()) flight->done = true;
      } catch (const std::exception&) {
        // CUDA is of no use any more: it was not done.
      }
    }
    broken_ = true;
  }
  host_->abort(reason);
  end_comm();
}

// NCCL knows that something is wrong; over the host ranks may tell who is missing.
void NcclGroup::fail(const std::string& what, const std::string& why) {
  const std::string cause = broken_ ? "" : cause_by_host();
  abort(cause.empty() ? named(what, why) : cause);
  check(what);
  throw BugError("[comm.nccl] a broken group is not broken");
}

std::string NcclGroup::cause_by_host() {
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

// False: it cannot end in peace.
bool NcclGroup::farewell() {
  const auto deadline =
      Clock::now() + std::min<Clock::duration>(kEndPatience, options_.timeout);
  Pause pause;
  try {
    for (const auto& flight : flights_) {
      while (!poll(*flight)) {
        if (Clock::now() > deadline) return false;
        pause.take();
      }
    }
    Result result = library_->CommFinalize(handle_);
    while (result == kInProgress && Clock::now() < deadline) {
      pause.take();
      result = async_error();
    }
    if (result != kSuccess) return false;
  } catch (const std::exception&) {
    return false;
  }
  const Handle handle = std::exchange(handle_, nullptr);
  ended_ = run_apart([library = library_, handle] { library->CommDestroy(handle); });
  return true;
}

void NcclGroup::end_comm() {
  Handle handle = nullptr;
  {
    const std::lock_guard lock(calls_);
    handle = std::exchange(handle_, nullptr);
  }
  if (!handle) return;
  auto ended = run_apart([library = library_, handle] { library->CommAbort(handle); });
  const std::lock_guard lock(calls_);
  ended_ = std::move(ended);
}

void NcclGroup::wait_for_end() {
  const std::lock_guard lock(calls_);
  if (ended_.valid()) ended_.wait_for(kEndPatience);
}

std::string NcclGroup::describe(Result result) const {
  const std::string last = first_line_of(library_->GetLastError(nullptr));
  const std::string hint =
      last.find("uplicate GPU") == std::string::npos
          ? ""
          : "; legal: a GPU for each rank, or for tests comm.nccl_share_gpu=true";
  return text(library_->GetErrorString(result), last.empty() ? "" : ": ", last, hint);
}

std::string NcclGroup::named(const std::string& what, const std::string& why) const {
  if (why.rfind("[comm.", 0) == 0) return why;  // it has all that yet
  return text("[comm.nccl] ", what, ": ", why, " (rank ", host_->rank(), " of ",
              host_->size(), ")");
}

}  // namespace cohort::nccl_backend
