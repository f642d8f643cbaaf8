// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace cohort {

// The norm of the whole gradient, in a form whose bits do not depend on how tensors are
// cut over ranks: each tensor's squares are added in chunks of fixed elements, and the
// chunks' sums in one order.
//
//   every rank: square_sums() of what it holds, cut at multiples of kNormChunk
//   together:   bring the sums of all chunks to every rank
//   every rank: norm_of() them, in the order of the tensors' names
//   then        StepScalars::grad_scale *= clip_factor(norm, limit)
//
// Squares of float32 cannot overflow in double, so a sum is finite if, and only if,
// every gradient in its chunk is: this is also the test for a step gone bad.

constexpr int64_t kNormChunk = 1024;

// sums[c] = the sum of squares of elements [c * kNormChunk, (c + 1) * kNormChunk) of a
// stretch that begins at a chunk's border; the last chunk may be short. `sums` has
// (count + kNormChunk - 1) / kNormChunk elements.
void square_sums(const float* gradient, int64_t count, std::span<double> sums);
void square_sums(const double* gradient, int64_t count, std::span<double> sums);

// The root of all sums, added from first to last, times `scale` (1 / samples).
double norm_of(std::span<const double> sums, double scale);

// Guards the division below against zero, as torch.nn.utils.clip_grad_norm_ does.
constexpr double kClipEps = 1e-6;

// What a gradient of that norm is multiplied with so that its norm is at most `limit`,
// as torch.nn.utils.clip_grad_norm_ has it; 1 for a limit of 0, which means none. Not a
// number if the norm is none.
double clip_factor(double norm, double limit);

}  // namespace cohort
