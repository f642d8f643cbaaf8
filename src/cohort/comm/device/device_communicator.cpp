// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/device/device_communicator.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <exception>

#include "cohort/comm/arguments.h"
#include "cohort/comm/dtype.h"
#include "cohort/comm/staging.h"
#include "cohort/core/error.h"

namespace cohort::device_comm {
namespace {

using c10::cuda::CUDAStream;

CUDAStream current_lane(at::Device device) {
  return c10::cuda::getCurrentCUDAStream(device.index());
}

// Which capture the stream is part of; 0: it is not captured.
uint64_t capture_of(const CUDAStream& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  C10_CUDA_CHECK(cudaStreamGetCaptureInfo(stream.stream(), &status, &id));
  // One that has failed has no number any more.
  return status == cudaStreamCaptureStatusNone ? 0 : std::max(id, 1ULL);
}

}  // namespace

// An event in a lane.
class DeviceFlight final : public Flight {
 public:
  explicit DeviceFlight(const CUDAStream& stream)
      : capture(capture_of(stream)), captured(capture != 0), lane_(stream) {
    event_.record(stream);
  }

  bool query() override { return event_.query(); }
  void join(const CUDAStream& stream) { event_.block(stream); }
  c10::DeviceIndex device() const { return event_.device_index(); }
  const CUDAStream& lane() const { return lane_; }

  const uint64_t capture;  // as capture_of() has it
  const bool captured;     // then it may be joined, but not asked

 private:
  CUDAStream lane_;
  c10::cuda::CUDAEvent event_;
};

namespace {

class DeviceOperation final : public Operation {
 public:
  DeviceOperation(std::shared_ptr<DeviceGroup> group, std::string what,
                  std::shared_ptr<DeviceFlight> flight, std::vector<Tensor> tensors,
                  int times = 1)
      : group_(std::move(group)),
        what_(std::move(what)),
        flight_(std::move(flight)),
        tensors_(std::move(tensors)),
        times_(times) {}

  void wait() override {
    refuse_captured("waited for");
    group_->wait(what_, *flight_, times_);
  }

  bool poll() override {
    refuse_captured("polled");
    return group_->poll(*flight_);
  }

  bool join() override {
    if (!flight_->captured && !flight_->done) group_->check(what_);
    flight_->join(c10::cuda::getCurrentCUDAStream(flight_->device()));
    return false;
  }

 private:
  void refuse_captured(const char* how) const {
    if (flight_->captured)
      throw BugError(text("[comm] ", what_, " is captured, not done, and was ", how,
                          "; legal: join()"));
  }

  std::shared_ptr<DeviceGroup> group_;
  std::string what_;
  std::shared_ptr<DeviceFlight> flight_;
  std::vector<Tensor> tensors_;
  int times_;  // as long as a call it may take
};

// The work of a lane may be many calls, and what a rank computes between them.
constexpr int kLanePatience = 10;

}  // namespace

DeviceCommunicator::DeviceCommunicator(DeviceSide side,
                                       std::shared_ptr<Communicator> host)
    : side_(std::move(side)),
      host_(std::move(host)),
      is_world_(!side_.family),
      device_(side_.device) {
  if (is_world_) side_.family = std::make_shared<DeviceFamily>(*host_);
}

DeviceCommunicator::~DeviceCommunicator() {
  if (is_world_ && aborted_.empty() && std::uncaught_exceptions() == 0)
    side_.family->processes().part();
  if (is_pinned_) cudaHostUnregister(side_.family->word().mutable_data_ptr());
}

Tensor DeviceCommunicator::stop_word() {
  const Tensor word = side_.family->word();
  if (!is_world_ || std::exchange(is_pinned_, true)) return word;
  // Memory that shares a page with it may be pinned already.
  const auto result = cudaHostRegister(word.mutable_data_ptr(), word.nbytes(), 0);
  if (result != cudaErrorHostMemoryAlreadyRegistered) C10_CUDA_CHECK(result);
  cudaGetLastError();
  return word;
}

std::shared_ptr<DeviceGroup> DeviceCommunicator::group_on(const char* op,
                                                          at::Device device) {
  if (device_ && *device_ != device) {
    refuse_call(*this, op,
                text("a tensor on ", device.str(), "; legal: one on cpu or ",
                     device_->str(), ", the GPU of this group"));
  }
  if (group_) return group_;
  if (capture_of(current_lane(device)) != 0)
    throw BugError(
        text("[comm.", backend(), "] ", op, ": the first call of a group is captured"));
  auto group = side_.start(host_);
  group->belong_to(side_.family);
  side_.family->add(group);
  device_ = device;
  const std::lock_guard lock(mutex_);
  group_ = group;
  if (!aborted_.empty()) group->abort(aborted_);
  return group;
}

void DeviceCommunicator::begin_call(const std::string& what,
                                    const std::vector<Tensor>& tensors) {
  const auto lane = current_lane(*device_);
  const uint64_t capture = capture_of(lane);
  const bool captured = capture != 0;
  if (captured && !side_.captures)
    throw BugError(text("[comm.", backend(), "] ", what,
                        " is captured; legal with this backend: calls as they come"));
  group_->enter(what);
  // What replays a capture orders it among what is not.
  const auto& last = captured ? last_captured_ : last_;
  if (last && last->capture == capture && last->lane() != lane) last->join(lane);
  // Memory that belongs to another lane is not used again before this one is done with
  // it. What is captured is done with it each time it is replayed: its owner keeps it.
  if (captured) return;
  for (const Tensor& tensor : tensors)
    c10::cuda::CUDACachingAllocator::recordStream(tensor.storage().data_ptr(), lane);
}

std::shared_ptr<DeviceFlight> DeviceCommunicator::end_call() {
  auto flight = std::make_shared<DeviceFlight>(current_lane(*device_));
  group_->leave(flight->captured ? nullptr : flight);
  if (!group_->orders_lanes()) (flight->captured ? last_captured_ : last_) = flight;
  return flight;
}

Work DeviceCommunicator::launch(const char* op, std::vector<Tensor> tensors,
                                const std::function<void(DeviceCall&)>& body) {
  const Tensor& first = tensors.front();
  const c10::cuda::CUDAGuard guard(first.device());
  const auto group = group_on(op, first.device());
  const std::string what =
      text(op, "(", dtype_name(first.scalar_type()), ", ", first.numel(), ")");
  begin_call(what, tensors);
  const at::AutoDispatchBelowADInplaceOrView unrecorded;
  try {
    body(*group->call(what, current_lane(*device_).stream()));
  } catch (const std::exception& error) {
    // Peers cannot know how much of it was made. A group that orders no lanes counts
    // what is captured as well.
    if (!end_call()->captured || !group->orders_lanes())
      group->abort(
          text(what, " was not made to its end: ", first_line_of(error.what())));
    throw;
  }
  auto flight = end_call();
  if (!flight->captured) group->watch(flight);
  return Work(std::make_unique<DeviceOperation>(group, what, std::move(flight),
                                                std::move(tensors)));
}

Work DeviceCommunicator::all_reduce(Tensor& tensor, ReduceOp op) {
  check_all_reduce(*this, tensor, op);
  if (tensor.is_cpu()) return host_->all_reduce(tensor, op);
  if (tensor.numel() == 0) return {};
  return launch("all_reduce", {tensor},
                [&](DeviceCall& call) { call.reduce_all(tensor, op); });
}

Work DeviceCommunicator::reduce_scatter(Tensor& out, const Tensor& in, ReduceOp op) {
  check_reduce_scatter(*this, out, in, op);
  if (in.is_cpu()) return host_->reduce_scatter(out, in, op);
  if (in.numel() == 0) return {};
  return launch("reduce_scatter", {in, out},
                [&](DeviceCall& call) { call.reduce_part(out, in, op); });
}

Work DeviceCommunicator::all_gather(Tensor& out, const Tensor& shard) {
  check_all_gather(*this, out, shard);
  if (shard.is_cpu()) return host_->all_gather(out, shard);
  if (shard.numel() == 0) return {};
  return launch("all_gather", {shard, out}, [&](DeviceCall& call) {
    const Tensor whole = out.is_contiguous() ? out : contiguous_like(out);
    call.gather(whole, contiguous_copy(shard));
    if (!out.is_contiguous()) copy_into(out, whole);
  });
}

Work DeviceCommunicator::broadcast(Tensor& tensor, int root) {
  check_broadcast(*this, tensor, root);
  if (tensor.is_cpu()) return host_->broadcast(tensor, root);
  if (tensor.numel() == 0) return {};
  return launch("broadcast", {tensor}, [&](DeviceCall& call) {
    const Tensor values = contiguous_copy(tensor);
    call.broadcast(values, root);
    if (!tensor.is_contiguous() && root != rank()) copy_into(tensor, values);
  });
}

Work DeviceCommunicator::all_to_all(Tensor& out, const Tensor& in,
                                    std::span<const int64_t> out_rows,
                                    std::span<const int64_t> in_rows) {
  const Parts parts = check_all_to_all(*this, out, in, out_rows, in_rows);
  if (in.is_cpu()) return host_->all_to_all(out, in, out_rows, in_rows);
  return launch("all_to_all", {in, out}, [&](DeviceCall& call) {
    const Tensor whole = out.is_contiguous() ? out : contiguous_like(out);
    call.swap(whole, contiguous_copy(in), parts);
    if (!out.is_contiguous()) copy_into(out, whole);
  });
}

Work DeviceCommunicator::exchange(std::span<const Transfer> sends,
                                  std::span<const Transfer> receives) {
  check_exchange(*this, sends, receives);
  std::vector<Tensor> tensors;
  for (const auto& list : {sends, receives})
    for (const auto& transfer : list) tensors.push_back(transfer.tensor);
  if (tensors.empty() || tensors.front().is_cpu())
    return host_->exchange(sends, receives);
  return launch("exchange", std::move(tensors),
                [&](DeviceCall& call) { call.exchange(sends, receives); });
}

Work DeviceCommunicator::so_far() {
  if (!group_) return {};  // nothing is there to wait for
  const c10::cuda::CUDAGuard guard(*device_);
  auto flight = std::make_shared<DeviceFlight>(current_lane(*device_));
  if (!flight->captured) group_->watch(flight);
  return Work(std::make_unique<DeviceOperation>(group_, "the work of a lane",
                                                std::move(flight),
                                                std::vector<Tensor>(), kLanePatience));
}

std::unique_ptr<Communicator> DeviceCommunicator::split(int color) {
  std::shared_ptr<Communicator> part = host_->split(color);
  if (!part) return nullptr;
  return make_device_communicator(side_, std::move(part));
}

Tensor DeviceCommunicator::allocate(at::IntArrayRef shape, at::ScalarType dtype,
                                    at::Device device) {
  check_allocate(*this, shape, dtype, device);
  if (device.is_cpu()) return host_->allocate(shape, dtype, device);
  return at::zeros(shape, at::TensorOptions().dtype(dtype).device(device));
}

void DeviceCommunicator::abort(std::string_view reason) {
  std::shared_ptr<DeviceGroup> group;
  {
    const std::lock_guard lock(mutex_);
    if (aborted_.empty()) aborted_ = reason.empty() ? "no reason given" : reason;
    group = group_;
  }
  if (group)
    group->abort(std::string(reason));
  else
    host_->abort(reason);
  if (is_world_) side_.family->abort(std::string(reason));
}

std::unique_ptr<Communicator> make_device_communicator(
    DeviceSide side, std::shared_ptr<Communicator> host) {
  if (shares_memory(*host))
    return std::make_unique<DevicePeerCommunicator>(std::move(side), std::move(host));
  return std::make_unique<DeviceCommunicator>(std::move(side), std::move(host));
}

}  // namespace cohort::device_comm
