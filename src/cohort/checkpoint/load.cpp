// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/load.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "cohort/core/error.h"
#include "cohort/core/format.h"

namespace cohort {

void require_fit(const Checkpoint& saved, const TensorSpec& wanted) {
  const TensorSpec& there = saved.tensor(wanted.name).tensor.spec;
  if (there.shape != wanted.shape)
    throw CheckpointError(text("[checkpoint.load] ", saved.path(), ": tensor '",
                               wanted.name, "' is ", format_shape(there.shape),
                               ", expected ", format_shape(wanted.shape)));
  if (at::isFloatingType(wanted.dtype) && !at::isFloatingType(there.dtype))
    throw CheckpointError(text("[checkpoint.load] ", saved.path(), ": tensor '",
                               wanted.name, "' is ", there.dtype, ", expected ",
                               wanted.dtype));
}

void load_pieces(Checkpoint& saved, std::span<StatePiece> pieces) {
  for (const auto& [tensor, data] : pieces) {
    const TensorSpec& wanted = tensor.spec;
    require_fit(saved, wanted);
    COHORT_CHECK(data.is_contiguous() && data.numel() == wanted.end - wanted.begin,
                 "piece of '", wanted.name, "'");
  }
  const c10::NoGradGuard no_grad;
  for (auto& piece : pieces) {
    const Tensor host = piece.data.is_cpu()
                            ? piece.data
                            : at::empty({piece.data.numel()}, piece.data.scalar_type());
    saved.read({piece.tensor, host});
    if (!piece.data.is_cpu()) piece.data.copy_(host.view_as(piece.data));
  }
}

}  // namespace cohort
