// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cohort/session.h"
#include "cohort/tensor.h"
#include "cohort/update_rule.h"

namespace torch::nn {
class Module;
}

namespace [[gnu::visibility("default")]] cohort {

struct StatePiece;  // the library's own

struct ShardedOptions {
  int level = 2;         // 0 nothing is cut, 1 optimizer state, 2 and gradients
  UpdateOptions update;  // any rule
  DecayOptions decay;
  double clip = 0;  // largest norm of the whole gradient; 0: any
  int64_t bucket_bytes = 25'000'000;
};

// Data parallelism for any torch::nn::Module with the state cut over the ranks: each
// keeps, and updates, only its shard of the optimizer's state, and hands the weights
// on.
//
//   auto session = cohort::Session::from_env();
//   cohort::Sharded sharded(*model, session.comm(), {.update = {.name = "adamw"}});
//   for (auto& batch : my_share) {
//     auto loss = torch::cross_entropy_loss(model->forward(batch.data), batch.target);
//     sharded.backward(loss, batch.target.size(0));  // instead of loss.backward()
//     sharded.step(1e-3);                            // instead of optimizer.step()
//   }
//
// Weights of ranks, unequal shares and parts of a step are as in DataParallel. A
// parameter without a gradient counts as one whose gradient is zero. Level 3 needs a
// Chain: a module gives no place to gather its parameters just in time.
//
// Failure: CommError as in Communicator; ConfigError if the ranks' models differ, for a
// level above 2, or a parameter that is not float32. Use it from one thread; module and
// communicator must outlive it.
class Sharded {
 public:
  Sharded(torch::nn::Module& module, Communicator& comm,
          const ShardedOptions& options = {});
  ~Sharded();

  // Backward of this rank's last or only part of the step, and the exchange of
  // gradients. Returns the mean loss over all samples of the step.
  double backward(const Tensor& mean_loss, int64_t count);
  double backward(const WeightedLoss& loss);

  // Backward of an earlier part of the step, without communication. Gradients are whole
  // on every rank until backward().
  void accumulate(const Tensor& mean_loss, int64_t count);
  void accumulate(const WeightedLoss& loss);

  // Updates every weight with the gradient of the step.
  void step(double rate);

  // Parameters that no rank had a gradient for in the last step.
  const std::vector<std::string>& unused() const;

 private:
  friend class Checkpoints;  // checkpoint.h
  // What this rank owns of weights and states, so that all ranks have each element
  // once; or all that it holds.
  std::vector<StatePiece> pieces(bool owned) const;
  torch::nn::Module& module() const;
  int64_t updates() const;
  void set_updates(int64_t updates);
  // Collective: pieces were written to; the module takes them.
  void publish();

  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort
