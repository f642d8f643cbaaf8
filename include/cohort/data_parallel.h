// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cohort/session.h"
#include "cohort/tensor.h"

namespace torch::nn {
class Module;
}

namespace [[gnu::visibility("default")]] cohort {

struct DataParallelOptions {
  // Gradients are reduced in groups of about this size, while backward goes on.
  int64_t bucket_bytes = 25'000'000;
};

// Data parallelism for any torch::nn::Module and any optimizer.
//
//   auto session = cohort::Session::from_env();
//   cohort::DataParallel parallel(*model, session.comm());  // rank 0's weights
//   for (auto& batch : my_share) {
//     auto loss = torch::cross_entropy_loss(model->forward(batch.data), batch.target);
//     parallel.backward(loss, batch.target.size(0));   // instead of loss.backward()
//     optimizer.step();
//   }
//
// After backward() every rank holds the gradient of the mean over *all* samples of
// the step: a rank with m_k of n samples weighs m_k / n, also when shards or last
// batches are unequal, or a rank has none. Gradients of the step before are cleared
// by the first call of a step: zero_grad() is not needed, and does no harm.
//
// A parameter that got no gradient on some ranks counts as zero there; one that got
// none on any rank keeps an undefined gradient and is named by unused().
//
// Parameters may be on several devices, as where a module is too large for one; they
// are summed through the host's memory, those of devices once the backward has ended.
//
// Failure: CommError as in Communicator; ConfigError if the ranks' models differ.
// Use it from one thread; module and communicator must outlive it.
class DataParallel {
 public:
  DataParallel(torch::nn::Module& module, Communicator& comm,
               const DataParallelOptions& options = {});
  ~DataParallel();

  // Backward of this rank's last or only part of the step, and the exchange.
  // Returns the mean loss over all samples of the step. `loss` is a mean over
  // `count` samples, or a sum with its count.
  double backward(const Tensor& mean_loss, int64_t count);
  double backward(const WeightedLoss& loss);

  // Backward of an earlier part of the step, without communication.
  void accumulate(const Tensor& mean_loss, int64_t count);
  void accumulate(const WeightedLoss& loss);

  // Parameters that no rank had a gradient for in the last step.
  const std::vector<std::string>& unused() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort
