// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace cohort {

// The numbers of one step that an update needs beside the tensors.
struct StepScalars {
  double rate = 0;        // learning rate
  double grad_scale = 1;  // what the summed gradient is multiplied with: 1 / count
  int64_t step = 1;       // counted from 1
};

// How a parameter changes with its gradient, element by element.
//
// Works on stretches of flat float32 memory, so that the same rule serves whole
// tensors, buckets and shards. The bits of an element do not depend on where the
// stretch it lies in begins or ends.
//
// Thread safety: apply() is const and may run for different stretches at once.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  UpdateRule(const UpdateRule&) = delete;
  UpdateRule& operator=(const UpdateRule&) = delete;

  virtual std::string_view name() const = 0;

  // Names of the state tensors, each as large as the parameters and zero at first.
  virtual std::span<const std::string_view> states() const = 0;

  // Updates parameter[0..count) and each states[i][0..count) in place.
  virtual void apply(float* parameter, const float* gradient,
                     std::span<float* const> states, int64_t count, double weight_decay,
                     const StepScalars& scalars) const = 0;

 protected:
  UpdateRule() = default;
};

struct UpdateOptions {
  std::string name = "sgd";
  double momentum = 0.9;  // sgd
  bool nesterov = false;
  double beta1 = 0.9;  // adam and adamw
  double beta2 = 0.999;
  double eps = 1e-8;
};

// ConfigError for an unknown name, with the nearest legal one.
std::unique_ptr<UpdateRule> make_update_rule(const UpdateOptions& options);

}  // namespace cohort
