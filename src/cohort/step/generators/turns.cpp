// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/generators/turns.h"

#include "cohort/core/error.h"

namespace cohort {

// Where there is no pipeline, a slice is done before the next one begins.
std::vector<Turn> turns_of(PipelineOrder order, const PipePlace& here) {
  if (here.places == 1) return one_forward_one_backward(here);
  switch (order) {
    case PipelineOrder::kGpipe:
      return gpipe(here);
    case PipelineOrder::kOneForwardOneBackward:
      return one_forward_one_backward(here);
    case PipelineOrder::kInterleaved:
      return interleaved(here);
    case PipelineOrder::kZeroBubble:
      return zero_bubble(here);
  }
  throw BugError("[step] no such order of a pipeline");
}

}  // namespace cohort
