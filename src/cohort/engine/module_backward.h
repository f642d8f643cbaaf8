// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "cohort/block.h"
#include "cohort/communicator.h"

namespace torch::nn {
class Module;
}

namespace cohort {

// Backward of a plain torch::nn::Module in parts, with a word for each gradient that
// autograd has put into parameter.grad(). What both wrappers of modules rest on.
class ModuleBackward {
 public:
  // Collective: ConfigError unless the ranks' modules are alike and have something to
  // train; takes rank 0's parameters and buffers. `who` speaks in errors.
  ModuleBackward(torch::nn::Module& module, Communicator& comm, std::string who,
                 std::function<void(size_t parameter)> on_gradient);
  ~ModuleBackward();
  ModuleBackward(const ModuleBackward&) = delete;
  ModuleBackward& operator=(const ModuleBackward&) = delete;

  // What is trained, in the order of the module.
  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  bool has_gradient(size_t parameter) const { return has_gradient_[parameter]; }

  // Drops the gradients of the step before, at the first part of a step.
  void begin_part();
  // One part of the step. A rank without samples has no graph to go back through.
  void run(const WeightedLoss& loss);

  struct Totals {
    double mean = 0;                  // mean loss over all samples of the step
    double count = 0;                 // number of samples
    std::vector<bool> used;           // by parameter: some rank had a gradient
    std::vector<std::string> unused;  // names of the others
  };
  // Collective; ends the step. ConfigError if no rank had a sample.
  Totals end_step();

 private:
  struct Hook;

  Communicator& comm_;
  std::string who_;
  std::function<void(size_t)> on_gradient_;
  std::vector<NamedTensor> parameters_;
  std::mutex arrives_;              // a gradient, of some device
  std::vector<bool> has_gradient_;  // in this step, on this rank
  bool in_step_ = false;
  double sum_ = 0;
  double count_ = 0;
};

// `mean` over `count` samples as a sum.
WeightedLoss weighted(const Tensor& mean, int64_t count);

}  // namespace cohort
