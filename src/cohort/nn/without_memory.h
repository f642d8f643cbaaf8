// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/TensorOptions.h>

namespace cohort {

// While one lives, the layers that this thread makes have tensors of the meta device:
// names, shapes, dtypes, strides and requires_grad are those of a usual model, but
// there are no values and no memory. So a model of any size can be counted
// (count_blocks) before anybody has room for it. It cannot become a usual one later.
//
// Like LibTorch's own guards it acts on its thread alone, because models are made by
// recipes that take nothing but settings. Guards of one thread end in reverse order.
class ModelsWithoutMemory {
 public:
  ModelsWithoutMemory();
  ~ModelsWithoutMemory();
  ModelsWithoutMemory(const ModelsWithoutMemory&) = delete;
  ModelsWithoutMemory& operator=(const ModelsWithoutMemory&) = delete;

 private:
  bool before_;
};

// What layers make their parameters and buffers with: float32 on the host, or without
// memory.
at::TensorOptions new_layer_tensor();

}  // namespace cohort
