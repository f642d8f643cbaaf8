// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/transformer_layers.h"

#include <ATen/ATen.h>

#include "cohort/core/error.h"
#include "cohort/nn/cut_parameter.h"

namespace cohort {
namespace {

constexpr double kEmbeddingDeviation = 0.02;

CutShape weight_shape(const Projection::Form& form) {
  const bool by_rows = form.order == WeightOrder::kOutIn;
  const bool cuts_out = form.cut == Projection::Cut::kColumns;
  return {.shape =
              by_rows ? std::vector{form.out, form.in} : std::vector{form.in, form.out},
          .dim = by_rows == cuts_out ? 0 : 1,
          .groups = form.groups};
}

Tensor add_bias(TensorLists& tensors, const std::string& name,
                const Projection::Form& form, const TensorPart& part) {
  if (!form.bias) return {};
  const bool cuts_out = form.cut == Projection::Cut::kColumns;
  return add_part(tensors, name, {.shape = {form.out}, .groups = form.groups},
                  all_equal_to(0), cuts_out ? part : TensorPart{});
}

}  // namespace

SplitEnd Projection::end_of(TensorLists& tensors, const Form& form,
                            const TensorPart& part) {
  return SplitEnd(tensors, form.tokens, form.out,
                  form.cut == Cut::kRows ? part : TensorPart{});
}

SummedGradients Projection::whole_of(TensorLists& tensors, const Form& form,
                                     const TensorPart& part) {
  const int64_t weight = form.cut == Cut::kNone ? form.in * form.out : 0;
  const int64_t bias = form.bias && form.cut != Cut::kColumns ? form.out : 0;
  return SummedGradients(tensors, weight + bias,
                         weight + bias > 0 ? part : TensorPart{});
}

Projection::Projection(TensorLists& tensors, const std::string& name, const Form& form,
                       const LayerOptions& options)
    : form_(form),
      part_(options.tensor),
      weight_(add_part(tensors, name + ".weight", weight_shape(form),
                       normal_values(form.deviation, options.seed, name + ".weight"),
                       form.cut == Cut::kNone ? TensorPart{} : part_)),
      bias_(add_bias(tensors, name + ".bias", form, part_)),
      end_(end_of(tensors, form, part_)),
      whole_(whole_of(tensors, form, part_)) {}

Tensor Projection::operator()(const Tensor& input, Context& context) const {
  const bool all_cut = form_.cut == Cut::kColumns;
  if (part_.size == 1 || all_cut)
    return linear_layer(input, weight_, bias_, form_.order, context);
  return of_parts(input, context);
}

// Sums of the ranks' gradients are not born in a bucket, and a bias is added once, to
// the sum of what ranks computed.
Tensor Projection::of_parts(const Tensor& input, Context& context) const {
  if (form_.cut == Cut::kRows) {
    const Tensor sum =
        end_(linear_layer(input, weight_, {}, form_.order, context), context);
    return bias_.defined() ? sum + whole_({bias_}, context)[0] : sum;
  }
  Context apart = context;
  apart.grads = nullptr;
  const auto whole = whole_(
      bias_.defined() ? std::vector{weight_, bias_} : std::vector{weight_}, context);
  return linear_layer(input, whole[0], bias_.defined() ? whole[1] : Tensor(),
                      form_.order, apart);
}

LayerNorm::LayerNorm(TensorLists& tensors, const std::string& name, int64_t width,
                     double eps, const LayerOptions& options)
    : eps_(eps),
      weight_(tensors.add_parameter(name + ".weight",
                                    new_parameter({width}, all_equal_to(1)))),
      bias_(tensors.add_parameter(name + ".bias",
                                  new_parameter({width}, all_equal_to(0)))),
      whole_(tensors, 2 * width, options.tensor) {}

Tensor LayerNorm::operator()(const Tensor& input, Context& context) const {
  const auto whole = whole_({weight_, bias_}, context);
  return at::layer_norm(input, weight_.sizes(), whole[0], whole[1], eps_);
}

RmsNorm::RmsNorm(TensorLists& tensors, const std::string& name, int64_t width,
                 double eps, const LayerOptions& options)
    : eps_(eps),
      weight_(tensors.add_parameter(name + ".weight",
                                    new_parameter({width}, all_equal_to(1)))),
      whole_(tensors, width, options.tensor) {}

Tensor RmsNorm::operator()(const Tensor& input, Context& context) const {
  return at::rms_norm(input, weight_.sizes(), whole_({weight_}, context)[0], eps_);
}

TokenEmbedding::TokenEmbedding(TensorLists& tensors, const std::string& name,
                               int64_t vocabulary, int64_t tokens, int64_t width,
                               const LayerOptions& options)
    : weight_(add_part(tensors, name, {.shape = {vocabulary, width}},
                       normal_values(kEmbeddingDeviation, options.seed, name),
                       options.tensor)),
      first_(range_of(vocabulary, options.tensor).first),
      rows_(range_of(vocabulary, options.tensor).count),
      part_(options.tensor),
      end_(tensors, tokens, width, options.tensor) {}

Tensor TokenEmbedding::operator()(const Tensor& tokens, Context& context) const {
  if (part_.size == 1) return at::embedding(weight_, tokens);
  const Tensor here = tokens - first_;
  const Tensor mine = here.ge(0).bitwise_and_(here.lt(rows_));
  const Tensor found = at::embedding(weight_, here.clamp(0, rows_ - 1));
  return end_(found * mine.unsqueeze(-1).to(found.scalar_type()), context);
}

RowTable::RowTable(TensorLists& tensors, const std::string& name, int64_t rows,
                   int64_t width, const LayerOptions& options)
    : name_(name),
      weight_(tensors.add_parameter(
          name, new_parameter({rows, width},
                              normal_values(kEmbeddingDeviation, options.seed, name)))),
      whole_(tensors, rows * width, options.tensor) {}

Tensor RowTable::operator()(int64_t first, int64_t count, Context& context) const {
  if (first + count > weight_.size(0))
    throw ConfigError(text("[nn] ", first + count, " tokens of a sequence for the ",
                           weight_.size(0), " rows of ", name_,
                           "; legal: at most as many"));
  return whole_({weight_}, context)[0].narrow(0, first, count);
}

Tensor add_dropped(const Tensor& residual, const Tensor& branch, const Dropout& dropout,
                   const TensorPart& part, Context& context) {
  return residual + dropout(branch, context, first_element(part, branch));
}

}  // namespace cohort
