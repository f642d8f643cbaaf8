// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/staging.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

namespace cohort {

Tensor contiguous_copy(const Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView unrecorded;
  return tensor.contiguous();
}

Tensor contiguous_like(const Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView unrecorded;
  return at::empty(tensor.sizes(), tensor.options().requires_grad(false),
                   at::MemoryFormat::Contiguous);
}

void copy_into(const Tensor& to, const Tensor& from) {
  const at::AutoDispatchBelowADInplaceOrView unrecorded;
  to.copy_(from.view(to.sizes()));
}

}  // namespace cohort
