// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "cohort/engine/cuda/device_text.h"

namespace cohort {

// Runs kernels of the texts (device_text.h) somewhere: on a GPU, or, in tests, on the
// host, one thread after another. Thread safety: none.
class KernelLauncher {
 public:
  virtual ~KernelLauncher() = default;
  KernelLauncher(const KernelLauncher&) = delete;
  KernelLauncher& operator=(const KernelLauncher&) = delete;

  virtual at::Device device() const = 0;

  // Makes the kernels ready, and returns the number of the first; the others follow.
  // Slow.
  virtual int load(const KernelProgram& program) = 0;

  // Starts a kernel with the struct it takes, which is copied, in at most `blocks`
  // blocks: as many as have something to do. 0: nothing happens.
  virtual void launch(int kernel, int64_t blocks, const void* arguments) = 0;

 protected:
  KernelLauncher() = default;
};

}  // namespace cohort
