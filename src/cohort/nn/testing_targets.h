// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <memory>

#include "cohort/block.h"
#include "cohort/step/gradient_target.h"

namespace cohort::test {

// Gives every parameter a target that holds something.
class SevenEverywhere final : public GradSink {
 public:
  GradCell take(const Tensor& parameter) override {
    Tensor& target = targets[parameter.unsafeGetTensorImpl()];
    if (!target.defined()) target = at::full_like(parameter, 7.0).detach();
    return std::make_shared<GradTarget>(target, accumulate);
  }
  std::map<const void*, Tensor> targets;
  bool accumulate = false;
};

}  // namespace cohort::test
