// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/device_side.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <unordered_set>

#include "cohort/core/error.h"
#include "cohort/step/memory_plan.h"

namespace cohort {
namespace {

constexpr auto kDevice = Buffer::Place::kDevice;

// Puts memory under a tensor and all its views; none: takes it away.
void set_memory(const Tensor& tensor, const Tensor& memory) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  if (!memory.defined()) {
    storage->set_data_ptr_noswap({nullptr, tensor.device()});
    storage->set_nbytes(0);
    return;
  }
  storage->set_data_ptr_noswap(c10::DataPtr(
      memory.data_ptr(), new Tensor(memory),
      [](void* kept) { delete static_cast<Tensor*>(kept); }, tensor.device()));
  storage->set_nbytes(memory.nbytes());
}

}  // namespace

DeviceSide::DeviceSide(const Chain& chain, FlatState& state, GradientSums& gradients,
                       const Schedule& schedule, const ExecutorOptions& options,
                       int slices)
    : lane_(options.compute_on == ComputeOn::kCuda ? make_cuda_lane(options.gpu)
                                                   : make_host_lane()),
      device_(lane_->device()),
      state_(state),
      gradients_(gradients),
      level_(schedule.shard),
      batch_(*lane_, schedule.precision.compute, chain.block_fields(), options.seed,
             slices),
      counts_(slices, 0) {
  const auto pinned = at::TensorOptions(at::kFloat).pinned_memory(device_.is_cuda());
  host_seed_ = at::ones({}, pinned);
  host_losses_ = at::zeros({slices}, pinned);
  lane_->run([&] {
    const c10::NoGradGuard no_grad;
    const auto floats = at::TensorOptions(at::kFloat).device(device_);
    seed_ = at::ones({}, floats);
    losses_ = at::zeros({slices}, floats);
    move_parameters(schedule);
    place_gradients(schedule);
    for (auto& [name, tensor] : chain.buffers()) {
      Tensor buffer = tensor;
      buffer.set_data(buffer.detach().to(device_, buffer.scalar_type(), false, true));
    }
  });
  lane_->wait();
}

void DeviceSide::move_parameters(const Schedule& schedule) {
  const auto options = at::TensorOptions(schedule.precision.compute).device(device_);
  for (const Buffer* spare :
       planned(schedule, Buffer::Holds::kGathered, kNone, kDevice))
    spare_.push_back(at::empty({spare->numel}, options));
  for (size_t i = 0; i < state_.buckets().size(); ++i) {
    const BucketState& bucket = state_.buckets()[i];
    const int b = static_cast<int>(i);
    wholes_.push_back(at::zeros({bucket.numel}, options));
    for (const auto& place : state_.places())
      if (place.bucket == b)
        place.parameter.set_data(FlatState::view(wholes_[i], place));
    if (level_ == 3) {
      set_memory(wholes_[i], {});
      lane_->pin(bucket.travels);
    } else {
      lane_->pin(bucket.whole);
      wholes_[i].copy_(bucket.whole);
    }
  }
}

void DeviceSide::place_gradients(const Schedule& schedule) {
  const auto options = at::TensorOptions(schedule.precision.compute).device(device_);
  std::vector<Tensor> slots;
  for (const Buffer* slot : planned(schedule, Buffer::Holds::kSlot, kNone, kDevice))
    slots.push_back(at::zeros({slot->numel}, options));
  leaves_.resize(state_.buckets().size());
  for (size_t i = 0; i < leaves_.size(); ++i) {
    if (!state_.buckets()[i].trained) continue;
    const int b = static_cast<int>(i);
    const auto own = planned(schedule, Buffer::Holds::kLeaf, b, kDevice);
    leaves_[i] =
        own.empty()
            ? slots.at(schedule.buckets[i].slot).narrow(0, 0, state_.buckets()[i].numel)
            : at::zeros({own[0]->numel}, options);
    for (const Tensor& memory : gradients_.leaves(b)) lane_->pin(memory);
  }
}

void DeviceSide::set_seed(double value) {
  if (host_seed_.item<float>() == static_cast<float>(value)) return;
  host_seed_.fill_(value);
  lane_->upload(seed_, host_seed_, /*behind=*/true);
}

// Nothing on the device reads the old weights any more: their gradient came later.
void DeviceSide::upload(int bucket) {
  lane_->upload(wholes_[bucket], state_.buckets()[bucket].whole, /*behind=*/false);
}

void DeviceSide::acquire(int bucket, const Tensor& host) {
  if (spare_.empty()) throw BugError("[engine] no memory planned for a bucket's copy");
  set_memory(wholes_[bucket], spare_.back());
  spare_.pop_back();
  lane_->upload(wholes_[bucket], host, /*behind=*/true);
}

// The host's memory may be used again at once, the device's by work behind what is
// started already.
void DeviceSide::release(int bucket) {
  lane_->wait_uploads();
  const auto& memory = wholes_[bucket].storage().data_ptr();
  spare_.push_back(*static_cast<Tensor*>(memory.get_context()));
  set_memory(wholes_[bucket], {});
}

GradientSums::Leaf DeviceSide::leaf(int bucket, int slice) const {
  return {leaves_[bucket], gradients_.adds_where_born(bucket) && slice > 0};
}

Tensor DeviceSide::host_leaf(int bucket, int slice) const {
  return gradients_.leaf(bucket, slice)
      .memory.narrow(0, 0, state_.buckets()[bucket].numel);
}

void DeviceSide::download(const Segment& segment) {
  if (segment.ends_forward)
    loss_ticket_ = lane_->download(host_losses_.narrow(0, segment.slice, 1),
                                   losses_.narrow(0, segment.slice, 1));
  for (const int bucket : segment.finishes)
    downloads_.push_back(
        {bucket, segment.slice,
         lane_->download(host_leaf(bucket, segment.slice), leaves_[bucket])});
}

void DeviceSide::finish(const Download& download) {
  lane_->wait_for(download.ticket);
  gradients_.finish_slice(download.bucket, download.slice);
}

void DeviceSide::settle(int bucket) {
  for (auto it = downloads_.begin(); it != downloads_.end();) {
    if (it->bucket != bucket) {
      ++it;
      continue;
    }
    finish(*it);
    it = downloads_.erase(it);
  }
}

void DeviceSide::settle_all() {
  for (const auto& download : downloads_) finish(download);
  downloads_.clear();
}

bool DeviceSide::is_settled(int bucket) const {
  return std::none_of(downloads_.begin(), downloads_.end(),
                      [=](const Download& d) { return d.bucket == bucket; });
}

void DeviceSide::keep_loss(int slice, const WeightedLoss& loss) {
  const c10::NoGradGuard no_grad;
  losses_.select(0, slice).copy_(loss.sum.detach());
  counts_[slice] = loss.count;
}

DeviceSide::LossSum DeviceSide::settle_loss() {
  if (loss_ticket_ >= 0) lane_->wait_for(loss_ticket_);
  LossSum loss;
  const float* const losses = host_losses_.const_data_ptr<float>();
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] > 0) loss.sum += losses[i];
    loss.count += counts_[i];
  }
  return loss;
}

std::vector<Statistic> DeviceSide::to_host(
    std::span<const Statistic> statistics) const {
  std::vector<Statistic> all(statistics.begin(), statistics.end());
  if (all.empty()) return all;
  const c10::NoGradGuard no_grad;
  lane_->run([&] {
    std::vector<Tensor> values;
    for (const auto& s : all) values.push_back(s.value.detach().reshape({-1}));
    const Tensor host = at::cat(values).to(at::kCPU);
    int64_t offset = 0;
    for (auto& s : all) {
      const int64_t count = s.value.numel();
      s.value = host.narrow(0, offset, count).view(s.buffer.sizes());
      offset += count;
    }
  });
  return all;
}

// Buffers change one slice after another, those of one slice together.
void DeviceSide::apply(std::span<const Statistic> statistics) const {
  if (statistics.empty()) return;
  const c10::NoGradGuard no_grad;
  lane_->run([&] {
    std::vector<Tensor> values;
    for (const auto& s : statistics) values.push_back(s.value.reshape({-1}));
    const Tensor all = at::cat(values).to(device_);
    int64_t offset = 0;
    for (size_t begin = 0; begin < statistics.size();) {
      std::vector<Tensor> buffers, fresh;
      std::unordered_set<const void*> seen;
      size_t end = begin;
      for (; end < statistics.size(); ++end) {
        const Statistic& s = statistics[end];
        if (s.momentum != statistics[begin].momentum ||
            !seen.insert(s.buffer.unsafeGetTensorImpl()).second)
          break;
        buffers.push_back(s.buffer);
        fresh.push_back(all.narrow(0, offset, s.buffer.numel()).view(s.buffer.sizes()));
        offset += s.buffer.numel();
      }
      const double momentum = statistics[begin].momentum;
      at::_foreach_mul_(buffers, 1 - momentum);
      at::_foreach_add_(buffers, fresh, momentum);
      begin = end;
    }
  });
}

}  // namespace cohort
