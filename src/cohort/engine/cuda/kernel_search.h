// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/Context.h>

namespace cohort {

// While it lives, nobody times the kernels of a convolution to take the fastest: a
// shape that comes once (a short last batch, validation) would pay seconds for nothing.
class NoKernelSearch {
 public:
  explicit NoKernelSearch(bool active)
      : before_(active && at::globalContext().benchmarkCuDNN()) {
    if (before_) at::globalContext().setBenchmarkCuDNN(false);
  }
  ~NoKernelSearch() {
    if (before_) at::globalContext().setBenchmarkCuDNN(true);
  }
  NoKernelSearch(const NoKernelSearch&) = delete;
  NoKernelSearch& operator=(const NoKernelSearch&) = delete;

 private:
  bool before_;
};

}  // namespace cohort
