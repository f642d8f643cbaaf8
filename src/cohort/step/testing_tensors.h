// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "cohort/tensor.h"

namespace cohort::test {

// For tests: a model's tensors, of several dtypes, one of them without elements.
inline std::vector<NamedTensor> some_tensors() {
  return {{"b.weight", at::tensor({1.0f, -2.5f, 3.25f, 0.0f, 5.0f, 6.0f}).view({2, 3})},
          {"a.steps", at::tensor({int64_t{7}}, at::kLong).squeeze()},
          {"mask", at::tensor({1, 0, 1}).to(at::kBool)},
          {"none", at::empty({0, 4})}};
}

}  // namespace cohort::test
