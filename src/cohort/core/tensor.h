// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace cohort {

// The one tensor of the project, as a light header: torch/torch.h costs 20 s of
// compile a file, this costs 3.
using Tensor = at::Tensor;

// A tensor of a model's state, under the name PyTorch's state_dict gives it.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

}  // namespace cohort
