// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/step_upload.h"

#include <ATen/ATen.h>

#include <utility>

namespace cohort {

StepUpload::StepUpload(Tensor there) : there_(std::move(there)) {
  if (!there_.is_cuda()) return;
  for (auto& turn : turns_)
    turn = at::empty(there_.sizes(),
                     there_.options().device(at::kCPU).pinned_memory(true));
}

void StepUpload::send(const Tensor& values) {
  if (!there_.is_cuda()) {
    there_.copy_(values);
    return;
  }
  Tensor& turn = turns_[turn_++ % turns_.size()];
  turn.copy_(values);
  there_.copy_(turn, /*non_blocking=*/true);
}

}  // namespace cohort
