// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/nccl/nccl_group.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "cohort/comm/device/patience.h"
#include "cohort/comm/nccl/nccl_call.h"
#include "cohort/core/error.h"

namespace cohort::nccl_backend {
namespace {

using device_comm::first_line_of;
using device_comm::kEndPatience;
using device_comm::Pause;
using device_comm::run_apart;
using device_comm::Seldom;

}  // namespace

NcclGroup::NcclGroup(std::shared_ptr<const Library> library,
                     std::shared_ptr<Communicator> host,
                     const DeviceGroupOptions& options)
    : DeviceGroup(std::move(host), "comm.nccl", options), library_(std::move(library)) {
  try {
    connect();
  } catch (...) {
    end_comm();  // no destructor runs
    wait_for_end();
    throw;
  }
}

NcclGroup::~NcclGroup() {
  if (is_broken() || std::uncaught_exceptions() > 0 || !farewell()) end_comm();
  wait_for_end();
}

std::unique_ptr<device_comm::DeviceCall> NcclGroup::call(const std::string& what,
                                                         Stream lane) {
  return std::make_unique<NcclCall>(*this, what, lane, host().size());
}

void NcclGroup::connect() {
  const std::string what = "connect";
  const auto deadline = Clock::now() + options().join_timeout;
  UniqueId id{};
  Tensor bytes = at::zeros({static_cast<int64_t>(sizeof(id.bytes))}, at::kByte);
  Result result = kSuccess;
  if (host().rank() == 0) {
    result = library_->GetUniqueId(&id);
    std::memcpy(bytes.mutable_data_ptr(), id.bytes, sizeof(id.bytes));
  }
  if (result != kSuccess) fail(what, describe(result));
  host().broadcast(bytes, 0).wait();
  std::memcpy(id.bytes, bytes.const_data_ptr(), sizeof(id.bytes));
  {
    const std::lock_guard lock(calls_);
    LibraryConfig config;
    result = library_->CommInitRankConfig(&handle_, host().size(), id, host().rank(),
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
  settle(what, result, Clock::now() + options().timeout);
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
  // A thread that holds it longer than a moment ends the ncclComm.
  const std::unique_lock lock(calls_, std::try_to_lock);
  if (!lock) return kInProgress;
  if (!handle_) return kSuccess;  // broken, as check() says
  Result state = kSuccess;
  const Result asked = library_->CommGetAsyncError(handle_, &state);
  return asked == kSuccess ? state : asked;
}

std::string NcclGroup::fault() {
  const Result result = async_error();
  return result == kSuccess || result == kInProgress ? "" : describe(result);
}

// False: it cannot end in peace.
bool NcclGroup::farewell() {
  const auto deadline =
      Clock::now() + std::min<Clock::duration>(kEndPatience, options().timeout);
  Pause pause;
  try {
    if (!lands_all(deadline)) return false;
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

}  // namespace cohort::nccl_backend
