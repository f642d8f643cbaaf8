// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/step_sums.h"

#include <ATen/ATen.h>

#include "cohort/core/error.h"
#include "cohort/step/generator.h"

namespace cohort {

StepSums::StepSums(Communicator& comm, int64_t listed)
    : comm_(comm),
      room_(listed),
      values_(comm.allocate({kFields + listed * comm.size()}, at::kDouble)) {
  static_assert(kFields * sizeof(double) == kLossBytes);
}

void StepSums::clear() {
  values_.zero_();
  mine_ = {};
}

void StepSums::add_loss(double sum, double count) {
  at(kLoss) += sum;
  at(kCount) += count;
}

void StepSums::draw(uint64_t key, std::span<const int64_t> ids) {
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

Work StepSums::reduce() { return comm_.all_reduce(values_, ReduceOp::kSum); }

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
