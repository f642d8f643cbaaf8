// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/cuda_math.h"

#include <ATen/Context.h>

namespace cohort {

void set_cuda_math(const CudaMath& math) {
  auto& context = at::globalContext();
  context.setAllowTF32CuDNN(math.tf32);
  context.setAllowTF32CuBLAS(math.tf32);
  context.setBenchmarkCuDNN(math.search);
  context.setDeterministicCuDNN(math.exact);
}

}  // namespace cohort
