// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace cohort::test {

// First values that every process makes alike, and no two parameters have.
inline void fill_with_sines(const std::vector<at::Tensor>& parameters) {
  int64_t i = 0;
  for (const auto& parameter : parameters)
    parameter.data().copy_(
        at::arange(parameter.numel(), at::kFloat).add(++i).sin().view_as(parameter));
}

}  // namespace cohort::test
