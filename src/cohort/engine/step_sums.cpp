// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/step_sums.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "cohort/core/error.h"
#include "cohort/step/generator.h"

namespace cohort {
namespace {

Tensor room_for_sums(Communicator& comm, int64_t count, at::Device device) {
  return device.is_cpu()
             ? comm.allocate({count}, at::kDouble)
             : at::zeros({count}, at::TensorOptions(at::kDouble).device(device));
}

}  // namespace

StepSums::StepSums(Communicator& comm, int64_t listed, at::Device device)
    : comm_(comm),
      room_(listed),
      values_(room_for_sums(comm, kFields + listed * comm.size(), device)),
      expected_(at::zeros({kExpected}, at::TensorOptions(at::kLong).device(device))),
      host_expected_(at::zeros({kExpected}, at::kLong)) {
  static_assert(kFields * sizeof(double) == kLossBytes);
  const auto on_host = [&] {
    return device.is_cpu() ? values() : at::zeros_like(values(), at::kCPU);
  };
  host_ = on_host();
  read_ = on_host();
}

void StepSums::clear() {
  host_.zero_();
  mine_ = {};
}

void StepSums::send() {
  expected_.send(host_expected_);
  if (!host_.is_same(values())) values_.send(host_);
}

void StepSums::expect(const std::optional<SampleSum>& samples) {
  auto* const fields = host_expected_.mutable_data_ptr<int64_t>();
  fields[kAsks] = samples.has_value();
  fields[kSum] = samples ? static_cast<int64_t>(samples->sum) : 0;
  fields[kNumber] = samples ? samples->count : 0;
}

// As drawn() has it: the halves that ranks add up may be larger than 32 bits.
Tensor StepSums::is_unexpected() const {
  const Tensor drawn = values().narrow(0, kLowHalf, kFields - kLowHalf).to(at::kLong);
  const Tensor sum = drawn[0] + at::bitwise_left_shift(drawn[1], 32);
  const Tensor other = (sum != expected_.there()[kSum])
                           .logical_or_(drawn[2] != expected_.there()[kNumber]);
  return other.logical_and_(expected_.there()[kAsks] != 0);
}

void StepSums::settle() {
  if (!read_.is_same(values())) read_.copy_(values());
}

void StepSums::add_loss(const WeightedLoss& loss) {
  if (!counts_) return;
  if (host_.is_same(values()))
    return add_loss(loss.sum.item<double>(), loss.count_here());
  const c10::NoGradGuard no_grad;
  values().select(0, kLoss).add_(loss.sum.detach());
  Tensor count = values().select(0, kCount);
  if (loss.counted.defined())
    count.add_(loss.counted);
  else
    count.add_(loss.count);
}

void StepSums::add_loss(double sum, double count) {
  at(kLoss) += sum;
  at(kCount) += count;
}

void StepSums::draw(uint64_t key, std::span<const int64_t> ids) {
  if (!counts_) return;
  const auto more = static_cast<int64_t>(ids.size());
  if (room_ > 0) {
    COHORT_CHECK(mine_.count + more <= room_, "rank ", comm_.rank(), " draws ",
                 mine_.count + more, " samples in a step of at most ", room_);
    const int64_t first = kFields + comm_.rank() * room_ + mine_.count;
    for (int64_t i = 0; i < more; ++i) at(first + i) = static_cast<double>(ids[i] + 1);
  }
  mine_ += sum_samples(key, ids);
  at(kLowHalf) = static_cast<double>(mine_.sum & 0xffffffffu);
  at(kHighHalf) = static_cast<double>(mine_.sum >> 32);
  at(kSamples) = static_cast<double>(mine_.count);
}

Work StepSums::reduce() {
  Tensor sums = values();
  return comm_.all_reduce(sums, ReduceOp::kSum);
}

SampleSum StepSums::drawn() const {
  const auto whole = [this](Field field) { return static_cast<uint64_t>(at(field)); };
  return {.sum = whole(kLowHalf) + (whole(kHighHalf) << 32),
          .count = static_cast<int64_t>(whole(kSamples))};
}

DrawnSamples StepSums::listed() const {
  if (room_ == 0) return {};
  DrawnSamples all(static_cast<size_t>(comm_.size()));
  for (int rank = 0; rank < comm_.size(); ++rank)
    for (int64_t i = 0; i < room_; ++i)
      if (const double id = at(kFields + rank * room_ + i); id > 0)
        all[rank].push_back(static_cast<int64_t>(id) - 1);
  return all;
}

}  // namespace cohort
