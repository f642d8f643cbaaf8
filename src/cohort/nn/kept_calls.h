// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "cohort/step/block_call.h"

namespace cohort {

// The calls of a block, in the form in which autograd keeps what is no tensor.
struct KeptCalls final : torch::CustomClassHolder {
  explicit KeptCalls(BlockCalls* calls) : calls(calls) {}
  BlockCalls* calls;
};

inline void keep_calls(torch::autograd::AutogradContext& context, BlockCalls* calls) {
  context.saved_data["calls"] =
      c10::IValue::make_capsule(c10::make_intrusive<KeptCalls>(calls));
}

inline BlockCalls& kept_calls(torch::autograd::AutogradContext& context) {
  const auto kept = context.saved_data["calls"].toCapsule();
  return *static_cast<const KeptCalls&>(*kept).calls;
}

}  // namespace cohort
