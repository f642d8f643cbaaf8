// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cohort {

// Makes LibTorch's meta device, whose tensors have no memory, fit for counting:
//
// - its tensors report the bytes they would have, so that a TensorMemoryScope sees what
//   a run on the host would allocate, when, and for how long;
// - operations of our layers that have a meta kernel in Python alone get one here. It
//   allocates what the host's kernel does, scratch included.
//
// An operation that still has none throws c10::Error. To be called before the first
// tensor that is to be counted is made; more than once does no harm. Any thread may
// call. It lasts as long as the process: LibTorch keeps such things for all threads.
void prepare_meta_device();

}  // namespace cohort
