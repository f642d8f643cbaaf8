// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/cross_entropy_function.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "cohort/core/error.h"
#include "cohort/nn/part_calls.h"
#include "cohort/nn/saved_value.h"
#include "cohort/nn/wide_type.h"
#include "cohort/step/logit_kernels.h"

namespace cohort {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Elements that are in float32 at once: they stay in the second cache, of a GPU or a
// core, so that memory sees two bytes of an element and no more.
constexpr int64_t kOnDevice = 1 << 22, kOnHost = 1 << 18;

// Calls what(first row, rows) for some rows at a time; without memory, where they only
// are counted, for the first ones alone.
template <typename What>
void by_chunks(const Tensor& logits, const What& what) {
  const int64_t at_once = logits.is_cuda() ? kOnDevice : kOnHost;
  const int64_t rows = std::max<int64_t>(1, at_once / logits.size(1));
  const int64_t end =
      logits.is_meta() ? std::min(rows, logits.size(0)) : logits.size(0);
  for (int64_t row = 0; row < end; row += rows)
    what(row, std::min(rows, logits.size(0) - row));
}

// What each token's logits here come to: the logarithm of the sum of their
// exponentials, and the one at the target, or 0 if that is elsewhere.
struct RowNumbers {
  Tensor log_sum, target;  // float64
};

// `places`: of the targets among the columns; negative: elsewhere.
RowNumbers numbers_of(const Tensor& logits, int64_t columns, const Tensor& places,
                      LogitKernels* kernels) {
  const auto options = logits.options().dtype(at::kDouble);
  RowNumbers numbers{at::empty({logits.size(0)}, options),
                     at::empty({logits.size(0)}, options)};
  if (kernels) {
    kernels->row_numbers(logits, columns, places, numbers.log_sum, numbers.target);
    return numbers;
  }
  logits.narrow(1, columns, logits.size(1) - columns)
      .fill_(-std::numeric_limits<double>::infinity());
  const Tensor place = places.clamp_min(0);
  by_chunks(logits, [&](int64_t row, int64_t rows) {
    const Tensor chunk = logits.narrow(0, row, rows).to(wide_type(logits));
    const Tensor at = place.narrow(0, row, rows).unsqueeze(1);
    const Tensor logit = chunk.gather(1, at).squeeze(1);
    const Tensor logarithm = at::_log_softmax(chunk, 1, false).gather(1, at).squeeze(1);
    numbers.log_sum.narrow(0, row, rows).copy_(logit - logarithm);
    numbers.target.narrow(0, row, rows).copy_(logit);
  });
  numbers.target.mul_(places.ge(0));
  return numbers;
}

// What turns logits into their gradient; null: operations of LibTorch.
struct LossBackward {
  LogitKernels* kernels;
  int64_t columns;
};

// Those of the whole vocabulary, of which every rank has a part.
RowNumbers joined_numbers(const RowNumbers& mine, int64_t ranks, BlockCalls& calls) {
  const Tensor told = at::stack({mine.log_sum, mine.target});
  Tensor all = at::empty({ranks, 2, told.size(1)}, told.options());
  calls.all_gather(kTensorAxis, all, told);
  const Tensor log_sums = all.select(1, 0), most = log_sums.amax(0);
  return {log_sums.sub(most).exp_().sum(0).log_().add_(most), all.select(1, 1).sum(0)};
}

struct TokenLossFunction : torch::autograd::Function<TokenLossFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& logits,
                               const Tensor& target, const PartRange& columns,
                               int64_t ranks, BlockCalls* calls,
                               LogitKernels* kernels) {
    const Tensor counted = target.ne(kIgnoredTarget);
    const Tensor place = target - columns.first;
    const Tensor mine = place.ge(0).bitwise_and_(place.lt(columns.count));
    const Tensor places = place.masked_fill(mine.bitwise_not(), -1);
    RowNumbers numbers =
        numbers_of(logits.variable_data(), columns.count, places, kernels);
    if (ranks > 1) numbers = joined_numbers(numbers, ranks, *calls);
    const Tensor losses = numbers.log_sum.sub(numbers.target).mul_(counted);
    context->save_for_backward({logits, places, counted, numbers.log_sum});
    save_value(*context, "with", LossBackward{kernels, columns.count});
    const Tensor count = counted.sum(at::kDouble);
    context->mark_non_differentiable({count});
    return {losses.sum().to(wide_type(logits)), count};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor logits = saved[0].variable_data();  // no longer the graph's
    const Tensor factor = grads[0].to(at::kDouble);
    const auto& with = saved_value<LossBackward>(*context, "with");
    if (with.kernels)
      with.kernels->turn_into_gradient(logits, with.columns, saved[1], saved[3],
                                       saved[2], factor);
    else
      turn_into_gradient(logits, saved[1], saved[3], saved[2], factor);
    return {logits, {}, {}, {}, {}, {}};
  }

  // factor (softmax - 1 at the target). The factor goes into the exponent, so that one
  // pass writes a chunk; of a token that is ignored it is 0.
  static void turn_into_gradient(const Tensor& logits, const Tensor& places,
                                 const Tensor& log_sums, const Tensor& counted,
                                 const Tensor& factor) {
    const Tensor sign = factor.sign(), here = places.clamp_min(0);
    const Tensor weight = counted.to(at::kDouble).mul_(factor.mul(sign));
    const Tensor shift = log_sums.sub(weight.log()).to(wide_type(logits)).unsqueeze(1);
    const Tensor at_target =
        weight.mul(places.ge(0)).to(wide_type(logits)).unsqueeze(1);
    const Tensor narrow_sign = sign.to(logits.scalar_type());
    by_chunks(logits, [&](int64_t row, int64_t rows) {
      Tensor chunk = logits.narrow(0, row, rows);
      const Tensor grad = at::sub(chunk, shift.narrow(0, row, rows)).exp_();
      grad.scatter_add_(1, here.narrow(0, row, rows).unsqueeze(1),
                        at_target.narrow(0, row, rows).neg());
      at::mul_out(chunk, grad, narrow_sign);
    });
  }
};

}  // namespace

TokenLoss token_loss(const Tensor& logits, const Tensor& target,
                     const PartRange& columns, const TensorPart& part,
                     Context& context) {
  COHORT_CHECK(part.size == 1 || context.calls, "a part of a vocabulary alone");
  const auto parts =
      TokenLossFunction::apply(logits, target.reshape({-1}), columns,
                               int64_t{part.size}, context.calls, context.logits);
  return {parts[0], parts[1]};
}

void declare_token_loss(TensorLists& tensors, int64_t tokens, const TensorPart& part) {
  if (part.size == 1) return;
  declare_forward(tensors, {.axes = kTensorAxis,
                            .op = CallOp::kAllGather,
                            .dtype = at::kDouble,
                            .per_sample = 2 * tokens});
}

}  // namespace cohort
