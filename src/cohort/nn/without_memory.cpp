// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/without_memory.h"

#include <utility>

namespace cohort {
namespace {

thread_local bool models_have_memory = true;

}  // namespace

ModelsWithoutMemory::ModelsWithoutMemory()
    : before_(std::exchange(models_have_memory, false)) {}

ModelsWithoutMemory::~ModelsWithoutMemory() { models_have_memory = before_; }

at::TensorOptions new_layer_tensor() {
  return at::TensorOptions()
      .dtype(at::kFloat)
      .device(models_have_memory ? at::kCPU : at::kMeta);
}

}  // namespace cohort
