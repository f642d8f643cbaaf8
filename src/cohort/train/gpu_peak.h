// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include "cohort/communicator.h"
#include "cohort/tensor.h"

namespace cohort {

// Operations per second that a GPU of that name does at best, in dense products of that
// dtype: what its maker's data sheet says. Nothing for a name that is not in the table.
std::optional<double> peak_flops(std::string_view gpu, at::ScalarType dtype);

// The part of `peak` that steps of that length use for so many operations: MFU, where
// these are the model's.
double flops_share(double flops_per_step, double step_seconds, double peak);

// Collective: the same of all GPUs that the ranks compute on, each counted once,
// however many ranks share it. Nothing if one of them is not known.
std::optional<double> peak_of_gpus(Communicator& comm, int gpu, at::ScalarType dtype);

}  // namespace cohort
