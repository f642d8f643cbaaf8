// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cohort {

// What LibTorch may do for speed, in the whole process.
struct CudaMath {
  bool tf32 = false;    // round factors of float32 products to 10 bits
  bool search = false;  // time the kernels of a convolution, take the fastest
  bool exact = false;   // only kernels that give the same bits every time
};
void set_cuda_math(const CudaMath& math);

}  // namespace cohort
