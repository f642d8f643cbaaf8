// SPDX-License-Identifier: Apache-2.0
// The smallest program on an installed Cohort: a tensor, an error, a message.
#include <ATen/ops/ones.h>

#include <iostream>

#include "cohort/comm/communicator.h"
#include "cohort/core/error.h"
#include "cohort/core/tensor.h"

int main() {
  const cohort::Tensor ones = at::ones({2, 3});
  try {
    COHORT_CHECK(ones.numel() == 7, "it is ", ones.numel());
  } catch (const cohort::Error& error) {
    std::cout << error.what() << "\n";
    return 0;
  }
  return 1;
}
