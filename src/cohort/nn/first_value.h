// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/MemoryFormat.h>

#include <cstdint>

#include "cohort/block.h"
#include "cohort/core/random.h"
#include "cohort/step/state_piece.h"
#include "cohort/tensor.h"

namespace cohort {

// How a new parameter gets its values. Each element follows from its row-major number
// alone, so that any piece of a parameter can be made without the rest.
struct FirstValue {
  RandomKey key;  // for uniform numbers in [low, high)
  double low = 0;
  double high = 0;  // the same as `low`: all elements are that
  double deviation =
      0;  // more than 0: normal numbers around `low`, `high` says nothing

  friend bool operator==(const FirstValue&, const FirstValue&) = default;
};

// While one lives, the parameters that this thread's layers make have no memory yet:
// they are CPU tensors with the form of the usual ones, and know how to get their
// values (first_value_of). The engine then makes on each rank only what is the rank's
// own. Code that computes with such a model otherwise calls give_first_values() before;
// to touch its elements without is an error of LibTorch's. Buffers are as usual.
//
// Like ModelsWithoutMemory, which comes first where both live, it acts on its thread
// alone, and guards end in reverse order.
class ModelsFilledLater {
 public:
  ModelsFilledLater();
  ~ModelsFilledLater();
  ModelsFilledLater(const ModelsFilledLater&) = delete;
  ModelsFilledLater& operator=(const ModelsFilledLater&) = delete;

 private:
  bool before_;
};

// What layers make their parameters with: float32 on the host, with these values;
// later, or without memory, if a guard says so.
Tensor new_parameter(at::IntArrayRef shape, const FirstValue& value,
                     at::MemoryFormat format = at::MemoryFormat::Contiguous);

// The same for a part of a parameter, of which `shape` is this rank's tensor: values
// are those of the whole, what is padding is zero.
Tensor new_part(at::IntArrayRef shape, const FirstValue& value,
                const ParameterCut& cut);

// How a parameter that is filled later gets its values; null if it has memory, or had.
const FirstValue* first_value_of(const Tensor& tensor);

// The elements of a piece of a parameter, whatever box of it that is cut from. `out`:
// as many, flat, float32, on the host. Takes no memory worth mentioning unless
// dimension 0 is not the slowest in memory.
void make_piece(const FirstValue& value, const StateTensor& piece, const Tensor& out);

// All parameters that were to be filled later get memory and values; their handles
// stay.
void give_first_values(const Chain& chain);
// Those of one block.
void give_first_values(const Block& block);

}  // namespace cohort
