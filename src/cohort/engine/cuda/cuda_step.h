// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cohort/data/dataset.h"
#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/cuda/device_batch.h"
#include "cohort/engine/cuda/fused_update.h"
#include "cohort/engine/cuda/step_control.h"
#include "cohort/engine/flat_state.h"
#include "cohort/optim/loss_scale.h"
#include "cohort/step/block.h"
#include "cohort/step/state_piece.h"

namespace cohort {

struct CudaStepOptions {
  UpdateOptions update;
  DecayOptions decay;
  at::ScalarType compute = at::kFloat;  // weights are kept and updated in float32
  double clip = 0;                      // as in ExecutorOptions
  uint64_t seed = 0;
  LossScaleOptions loss_scale;  // for float16
  int slices = 1;               // a batch is computed in, one after another
  // By block: keep its input, not what its forward made. Empty: none.
  std::vector<bool> recompute;

  // Off: every step is started kernel by kernel.
  bool capture = true;
  int warmup = 3;  // steps before the capture, at least 1: LibTorch chooses kernels

  // On the host instead, without a graph: the same arithmetic where there is no GPU.
  bool on_host = false;
  int gpu = 0;  // which one
};

// What LibTorch may do for speed, in the whole process.
struct CudaMath {
  bool tf32 = false;    // round factors of float32 products to 10 bits
  bool search = false;  // time the kernels of a convolution, take the fastest
  bool exact = false;   // only kernels that give the same bits every time
};
void set_cuda_math(const CudaMath& math);

// The training step of a world of one rank, on its GPU: forward, backward, test for
// numbers that are not finite, clipping, update, publishing and the running statistics,
// captured as one CUDA graph and replayed. Rate and step number come from device memory
// (StepControl), as do loss scale, skip flag and the keys of random numbers, so a
// replay is never out of date.
//
// It moves the chain's parameters and buffers to the GPU: parameters become views of
// one flat tensor of the compute dtype, with float32 masters beside it; gradients go to
// a third. Law 1 holds: a step whose gradients are not finite changes nothing.
//
// A block must wait for nothing in forward and draw random numbers only from the keys
// of its Context, or its capture is refused with ConfigError. What is captured are
// batches of the shape that came first; a step of another shape is started kernel by
// kernel.
//
// Use: load() every slice and start() each step, result() where the loss is wanted.
// Only result(), weights(), evaluate() and wait() wait for the GPU. After an exception
// it is only good for destruction. Thread safety: none.
class CudaStep {
 public:
  CudaStep(Chain& chain, const CudaStepOptions& options);
  ~CudaStep();

  // The samples of slice `slice` of the step that is started next.
  void load(int64_t step, const Batch& batch, int slice = 0);
  void start(int64_t step, double rate);  // `step` is counted from 0
  void wait();

  struct Result {
    double loss = 0;  // mean over the batch
    double count = 0;
    double norm = 0;  // of the gradient, with clipping
    double loss_scale = 1;
    bool skipped = false;
  };
  Result result();  // of the last step started
  // The first parameter whose gradient was not finite in the last step; empty: none
  // was.
  std::string bad_gradient();

  WeightedLoss evaluate(const Batch& batch);

  // Float32 weights and buffers, on the host, under their names.
  std::vector<NamedTensor> weights();

  // As in StepRunner. Pieces lie on the device; wait() before they are read.
  std::vector<StatePiece> state();
  void refresh();
  std::string small_state();
  void set_small_state(const std::string& text);

  bool captured() const { return captured_; }
  int64_t peak_bytes() const;  // of the GPU's memory; 0 on the host

 private:
  struct Flight {
    Values inputs, outputs;
  };

  void capture();
  StepControl make_control();
  void lay_out();
  void move_parameters();
  void move_buffers();

  void compute();
  bool recomputes(size_t block) const {
    return block < options_.recompute.size() && options_.recompute[block];
  }
  void forward(int slice);
  void backward(int slice);
  Values run_block(size_t block, int slice, bool again);
  void keep_gradients(size_t block, const Values& gradients);
  void update();
  void fold_statistics();
  Tensor fresh_statistics(int slice);

  Chain& chain_;
  CudaStepOptions options_;
  std::unique_ptr<CudaLane> lane_;
  at::Device device_;
  StepControl control_;

  std::vector<Place> places_;             // of trained parameters
  std::vector<std::vector<int>> blocks_;  // places, by block
  std::vector<NamedTensor> frozen_;       // parameters that nobody trains
  std::unordered_map<const void*, size_t> buffer_index_;
  int64_t numel_ = 0;
  Tensor whole_, master_, gradient_, widened_;  // flat; equal where dtypes are
  std::unique_ptr<FusedUpdate> update_;
  std::vector<NamedTensor> buffers_;
  Tensor running_, momentum_;  // flat: all buffers, and how fast each follows

  DeviceBatch batch_;
  double count_ = 0;        // what the loss adds up
  double usual_count_ = 0;  // in captured steps

  // Of the step that is being started.
  std::vector<Flight> flights_;
  std::vector<bool> written_;  // by place
  std::vector<Statistic> statistics_;
  Tensor seed_;  // of backward
  bool first_slice_ = true;
  int64_t step_ = 0;
  int started_ = 0;  // of the usual shape
  int graph_ = 0;
  bool captured_ = false;
};

}  // namespace cohort
