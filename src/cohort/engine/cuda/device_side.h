// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/cuda/device_batch.h"
#include "cohort/engine/flat_state.h"
#include "cohort/engine/gradient_sums.h"
#include "cohort/engine/step_runner.h"

namespace cohort {

// Forwards and backwards that are started as one, and captured as one graph: up to the
// next gradient or loss that the host waits for.
struct Segment {
  std::vector<int> actions;   // of the role, in order
  std::vector<int> finishes;  // buckets whose gradient is whole behind it
  std::vector<int> touches;   // buckets whose gradient it adds to
  int slice = 0;              // of the rank
  bool ends_forward = false;  // the slice's loss is there behind it
  int graph = kNone;
  double count = 0;                   // of the loss; of the graph
  std::vector<Statistic> statistics;  // of the graph
};

// The device of a rank whose state lives in the host's memory (central storage): copies
// of the parameters for blocks to compute with, and gradients on their way to the host,
// which sums and updates them as it would its own. Copies run beside computation.
//
// From shard level 2 on, gradients of buckets take turns in a few pieces of memory; at
// level 3 parameters have device memory only between acquire() and release().
class DeviceSide {
 public:
  // Moves the chain's parameters and buffers. `slices` are this rank's.
  DeviceSide(const Chain& chain, FlatState& state, GradientSums& gradients,
             const Schedule& schedule, const ExecutorOptions& options, int slices);

  CudaLane& lane() const { return *lane_; }
  DeviceBatch& batch() { return batch_; }
  const Tensor& seed() const { return seed_; }
  void set_seed(double value);

  // Weights changed on the host, all of the bucket.
  void upload(int bucket);
  // Device memory for a bucket's parameters, which come from `host`.
  void acquire(int bucket, const Tensor& host);
  void release(int bucket);

  // Where gradients of a slice are born on the device, and whether they are added.
  GradientSums::Leaf leaf(int bucket, int slice) const;
  // Starts the copies of what that segment finished.
  void download(const Segment& segment);
  // Waits for a bucket's gradients, and adds them to those of earlier slices.
  void settle(int bucket);
  void settle_all();
  bool is_settled(int bucket) const;

  // The loss of a slice, as the device finds it; and what the host knows of it then.
  void keep_loss(int slice, const WeightedLoss& loss);
  void set_count(int slice, double count) { counts_[slice] = count; }
  double count(int slice) const { return counts_[slice]; }
  // Waits for the sum over all slices; its count is added up too.
  struct LossSum {
    double sum = 0, count = 0;
  };
  LossSum settle_loss();

  // Their values as one copy each way, and running statistics changed by them.
  std::vector<Statistic> to_host(std::span<const Statistic> statistics) const;
  void apply(std::span<const Statistic> statistics) const;

 private:
  struct Download {
    int bucket, slice;
    int64_t ticket;
  };

  void move_parameters(const Schedule& schedule);
  void place_gradients(const Schedule& schedule);
  void finish(const Download& download);
  Tensor host_leaf(int bucket, int slice) const;

  std::unique_ptr<CudaLane> lane_;
  at::Device device_;
  FlatState& state_;
  GradientSums& gradients_;
  int level_;
  DeviceBatch batch_;
  std::vector<Tensor> wholes_, leaves_;  // by bucket
  std::vector<Tensor> spare_;            // at level 3, each fit for the largest bucket
  Tensor seed_, host_seed_;
  Tensor losses_, host_losses_;  // by slice
  std::vector<double> counts_;   // by slice
  int64_t loss_ticket_ = -1;
  std::deque<Download> downloads_;  // not settled
};

}  // namespace cohort
