// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/part_calls.h"

#include <ATen/ATen.h>

#include <utility>

#include "cohort/core/error.h"
#include "cohort/nn/saved_value.h"

namespace cohort {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using PartOp = CallOp;

Tensor summed_parts(const Tensor& part, BlockCalls& calls) {
  Tensor sum = part.clone(at::MemoryFormat::Contiguous);
  calls.all_reduce(kTensorAxis, sum);
  return sum;
}

// (samples, tokens of a rank, width) of all ranks, to (samples, tokens, width).
Tensor gathered_tokens(const Tensor& part, int64_t ranks, BlockCalls& calls) {
  const Tensor mine = part.contiguous();
  const int64_t samples = mine.size(0), tokens = mine.size(1), width = mine.size(2);
  Tensor all = at::empty({ranks, samples, tokens, width}, mine.options());
  calls.all_gather(kTensorAxis, all, mine);
  return all.transpose(0, 1).reshape({samples, ranks * tokens, width});
}

// The sum over ranks, of which each gets its own tokens.
Tensor scattered_tokens(const Tensor& whole, int64_t ranks, BlockCalls& calls) {
  const int64_t samples = whole.size(0), width = whole.size(2);
  const int64_t tokens = whole.size(1) / ranks;
  const Tensor parts =
      whole.reshape({samples, ranks, tokens, width}).transpose(0, 1).contiguous();
  Tensor sum = at::empty({samples, tokens, width}, whole.options());
  calls.reduce_scatter(kTensorAxis, sum, parts);
  return sum;
}

// How many parts a sequence has; 0: it is whole everywhere.
int64_t sequence_parts(const TensorPart& part) { return part.sequence ? part.size : 0; }

struct SplitBeginFunction : torch::autograd::Function<SplitBeginFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input,
                        BlockCalls* calls, int64_t parts) {
    save_value(*context, "calls", calls);
    context->saved_data["parts"] = parts;
    return parts > 0 ? gathered_tokens(input, parts, *calls) : input;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const int64_t parts = context->saved_data["parts"].toInt();
    BlockCalls& calls = *saved_value<BlockCalls*>(*context, "calls");
    return {parts > 0 ? scattered_tokens(grads[0], parts, calls)
                      : summed_parts(grads[0], calls),
            {},
            {}};
  }
};

struct SplitEndFunction : torch::autograd::Function<SplitEndFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input,
                        BlockCalls* calls, int64_t parts) {
    save_value(*context, "calls", calls);
    context->saved_data["parts"] = parts;
    return parts > 0 ? scattered_tokens(input, parts, *calls)
                     : summed_parts(input, *calls);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const int64_t parts = context->saved_data["parts"].toInt();
    return {parts > 0 ? gathered_tokens(grads[0], parts,
                                        *saved_value<BlockCalls*>(*context, "calls"))
                      : grads[0],
            {},
            {}};
  }
};

struct SummedGradientsFunction : torch::autograd::Function<SummedGradientsFunction> {
  static variable_list forward(AutogradContext* context, at::TensorList given,
                               BlockCalls* calls) {
    save_value(*context, "calls", calls);
    context->save_for_backward(given.vec());
    return given.vec();
  }
  // In one call, in which a parameter without a gradient has zeros.
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto parameters = context->get_saved_variables();
    std::vector<Tensor> flat;
    for (size_t i = 0; i < grads.size(); ++i)
      flat.push_back(grads[i].defined() ? grads[i].reshape({-1})
                                        : at::zeros_like(parameters[i]).reshape({-1}));
    Tensor all = at::cat(flat);
    saved_value<BlockCalls*>(*context, "calls")->all_reduce(kTensorAxis, all);
    variable_list sums;
    int64_t begin = 0;
    for (const auto& parameter : parameters) {
      sums.push_back(all.narrow(0, begin, parameter.numel()).view(parameter.sizes()));
      begin += parameter.numel();
    }
    sums.emplace_back();
    return sums;
  }
};

bool is_alone(const TensorPart& part, const Context& context) {
  if (part.size == 1) return true;
  COHORT_CHECK(context.calls, "a part of a layer, and nobody with the others");
  return false;
}

// For a value at a border: all tokens of a rank, or its part of them.
BlockCall of_tokens(PartOp op, int64_t elements) {
  return {.axes = kTensorAxis,
          .op = op,
          .dtype = at::ScalarType::Undefined,
          .per_sample = elements};
}

void declare_backward(TensorLists& tensors, BlockCall call) {
  call.when = BlockCall::When::kBackward;
  tensors.backward_calls.push_back(call);
}

}  // namespace

void declare_forward(TensorLists& tensors, const BlockCall& call) {
  for (const auto when : {BlockCall::When::kForward, BlockCall::When::kEvaluate}) {
    tensors.forward_calls.push_back(call);
    tensors.forward_calls.back().when = when;
  }
}

SplitBegin::SplitBegin(TensorLists& tensors, int64_t tokens, int64_t width,
                       const TensorPart& part)
    : part_(part) {
  if (part.size == 1) return;
  const int64_t whole = tokens * width;
  if (part.sequence)
    declare_forward(tensors, of_tokens(PartOp::kAllGather, whole / part.size));
  declare_backward(
      tensors,
      of_tokens(part.sequence ? PartOp::kReduceScatter : PartOp::kAllReduce, whole));
}

Tensor SplitBegin::operator()(const Tensor& input, Context& context) const {
  if (is_alone(part_, context)) return input;
  return SplitBeginFunction::apply(input, context.calls, sequence_parts(part_));
}

SplitEnd::SplitEnd(TensorLists& tensors, int64_t tokens, int64_t width,
                   const TensorPart& part)
    : part_(part) {
  if (part.size == 1) return;
  const int64_t whole = tokens * width;
  declare_forward(
      tensors,
      of_tokens(part.sequence ? PartOp::kReduceScatter : PartOp::kAllReduce, whole));
  if (part.sequence)
    declare_backward(tensors, of_tokens(PartOp::kAllGather, whole / part.size));
}

Tensor SplitEnd::operator()(const Tensor& input, Context& context) const {
  if (is_alone(part_, context)) return input;
  return SplitEndFunction::apply(input, context.calls, sequence_parts(part_));
}

SummedGradients::SummedGradients(TensorLists& tensors, int64_t numel,
                                 const TensorPart& part)
    : part_(part) {
  if (part.size == 1 || !part.sequence) return;
  declare_backward(tensors, {.axes = kTensorAxis,
                             .op = PartOp::kAllReduce,
                             .dtype = at::ScalarType::Undefined,
                             .numel = numel});
}

std::vector<Tensor> SummedGradients::operator()(std::vector<Tensor> parameters,
                                                Context& context) const {
  if (!part_.sequence || is_alone(part_, context)) return parameters;
  return SummedGradientsFunction::apply(at::TensorList(parameters), context.calls);
}

int64_t first_token(const TensorPart& part, int64_t tokens) {
  return part.sequence ? part.rank * tokens : 0;
}

int64_t first_element(const TensorPart& part, const Tensor& activation) {
  return first_token(part, activation.size(1)) * activation.size(2);
}

}  // namespace cohort
