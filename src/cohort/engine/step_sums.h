// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cohort/block.h"
#include "cohort/communicator.h"
#include "cohort/data/sample_sum.h"
#include "cohort/engine/step_upload.h"

namespace cohort {

// Which samples each rank drew in a step: ids, by rank.
using DrawnSamples = std::vector<std::vector<int64_t>>;

// The small sums of a step that every rank must know before it votes: the loss, which
// ranks were asked to stop, and what the ranks really computed with. They travel
// together, as doubles: whole numbers below 2^53 add up exactly in any order.
//
// Use: clear(), then the additions of this rank, then reduce(); once that is waited for
// all ranks read the same. Where they are summed in the memory of a device, send()
// comes behind all but losses, and settle() before anything is read.
// Thread safety: none.
class StepSums {
 public:
  // `listed`: the most samples of a rank in one step, if their ids are to be told to
  // all ranks; 0: only their sum is.
  StepSums(Communicator& comm, int64_t listed, at::Device device = at::kCPU);

  // Others compute the same losses and draw the same samples: from here on what this
  // rank adds of them is left out.
  void leave_to_others() { counts_ = false; }
  bool counts() const { return counts_; }

  void clear();
  void add_loss(double sum, double count);
  void add_loss(const WeightedLoss& loss);  // on the device
  void ask_to_stop() { at(kStop) = 1; }
  // Samples that this rank computes with, under the key of their epoch.
  void draw(uint64_t key, std::span<const int64_t> ids);

  // Starts the transfer to the device; nothing is waited for. On the host they are
  // there.
  void send();
  Work reduce();  // collective
  // What is read from here on: the sums as they are, for which it waits, or a copy of
  // values() in memory of the host that was made when they were complete.
  void settle();
  void settle(const Tensor& copied) { read_ = copied; }
  const Tensor& values() const { return values_.there(); }

  // The same as values where they are summed: what the loss is a mean over, and one
  // bool, that all ranks together drew something else than was sent as expected.
  Tensor count_value() const { return values().select(0, kCount); }
  void expect(const std::optional<SampleSum>& samples);
  Tensor is_unexpected() const;

  double loss_sum() const { return at(kLoss); }
  double count() const { return at(kCount); }  // what the loss is a mean over
  bool asked_to_stop() const { return at(kStop) > 0; }
  SampleSum drawn() const;
  DrawnSamples listed() const;  // empty unless they were to be listed

 private:
  // A sum of samples travels in two halves, so that no rank's part is rounded.
  enum Field { kLoss, kCount, kStop, kLowHalf, kHighHalf, kSamples, kFields };

  // What is expected: whether anything is, and which samples.
  enum Expected { kAsks, kSum, kNumber, kExpected };

  double& at(int64_t field) { return host_.data_ptr<double>()[field]; }
  double at(int64_t field) const { return read_.const_data_ptr<double>()[field]; }

  Communicator& comm_;
  bool counts_ = true;
  int64_t room_;  // for the ids of a rank, each as id + 1; 0: none
  // The fields, then that room for each rank; where they are summed.
  StepUpload values_;
  Tensor host_;  // the same memory, or what this rank gives, on the host
  Tensor read_;  // the same, or a copy of what came of it
  StepUpload expected_;
  Tensor host_expected_;
  SampleSum mine_;
};

}  // namespace cohort
