// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "cohort/engine/cuda/step_control.h"
#include "cohort/optim/update_rule.h"

namespace cohort {

// The update rules of optim/ by LibTorch's multi-tensor kernels, which read rate, step
// and skip flag from device memory: so a captured update serves every step. A step to
// be skipped changes nothing.
class FusedUpdate {
 public:
  // ConfigError for a rule that has no such kernel. `master` is flat and float32.
  FusedUpdate(const UpdateOptions& options, const Tensor& master);

  // Elements [begin, begin + count) are updated with this weight decay. Elements that
  // nobody adds stay as they are.
  void add_range(int64_t begin, int64_t count, double weight_decay);

  // `gradient` is of the mean loss, as large as the master; it is used up.
  void apply(const Tensor& gradient, const StepControl& control);

  // As the rule of optim/ names them, each as large as the master.
  const std::vector<Tensor>& states() const { return states_; }

 private:
  struct Range {
    int64_t begin, count;
  };
  using Apply = void (FusedUpdate::*)(const std::vector<Range>&, double decay,
                                      const Tensor& gradient,
                                      const StepControl& control);

  void sgd(const std::vector<Range>& ranges, double decay, const Tensor& gradient,
           const StepControl& control);
  void adam(const std::vector<Range>& ranges, double decay, const Tensor& gradient,
            const StepControl& control);
  void adamw(const std::vector<Range>& ranges, double decay, const Tensor& gradient,
             const StepControl& control);

  UpdateOptions options_;
  Apply apply_ = nullptr;
  Tensor master_;
  std::vector<Tensor> states_;                   // as large as the master
  std::map<double, std::vector<Range>> ranges_;  // by weight decay
};

}  // namespace cohort
