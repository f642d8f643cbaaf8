// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/first_value.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/nn/without_memory.h"
#include "cohort/step/chain_specs.h"

namespace cohort {
namespace {

constexpr int64_t kRowElements = 1 << 16;  // that are put in another order at once

thread_local bool models_are_filled_later = false;

void delete_first_value(void* value) { delete static_cast<FirstValue*>(value); }

// The value lies where the memory's owner would be, so that it goes with the tensor.
Tensor to_be_filled(const Tensor& form, const FirstValue& value) {
  c10::Storage storage(
      c10::Storage::use_byte_size_t(), 0,
      c10::DataPtr(nullptr, new FirstValue(value), delete_first_value, at::kCPU),
      c10::GetCPUAllocator(), /*resizable=*/false);
  storage.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(
      "[nn] a parameter that is to be filled later has no elements yet; legal: after "
      "give_first_values()");
  Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      caffe2::TypeMeta::Make<float>());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(form.sizes(), form.strides());
  return tensor;
}

// Elements `first`, `first` + 1, ... of a whole parameter.
void fill(const FirstValue& value, Tensor& out, int64_t first) {
  if (value.deviation > 0)
    fill_normal(out, value.key, value.low, value.deviation, first);
  else
    fill_uniform(out, value.key, value.low, value.high, first);
}

TensorSpec cut_spec(const ParameterCut& cut) {
  TensorSpec spec{.name = {}, .shape = cut.shape, .box = cut.box};
  spec.end = spec.box_numel();
  return spec;
}

// What a rank's tensor begins with, and zeros.
void fill_part(const FirstValue& value, const TensorSpec& spec, const Tensor& flat) {
  make_piece(value, {.spec = spec}, flat.narrow(0, 0, spec.end));
  flat.narrow(0, spec.end, flat.numel() - spec.end).zero_();
}

// Rows along dimension 0, the slowest in memory, are made row-major and put in order.
void make_rows(const FirstValue& value, const StateTensor& tensor, int64_t begin,
               const Tensor& out) {
  const TensorSpec& spec = tensor.spec;
  const bool by_rows = tensor.order[0] == 0;
  const int64_t row = by_rows ? spec.numel() / spec.shape[0] : spec.numel();
  const int64_t at_once = std::max<int64_t>(1, kRowElements / row);
  const int64_t end = begin + out.numel();
  for (int64_t first = begin / row; first * row < end; first += at_once) {
    const int64_t last = std::min((end + row - 1) / row, first + at_once);
    auto shape = spec.shape;
    if (by_rows) shape[0] = last - first;
    Tensor rows = at::empty(shape, at::kFloat);
    fill(value, rows, first * row);
    const int64_t from = std::max(begin, first * row), to = std::min(end, last * row);
    out.narrow(0, from - begin, to - from)
        .copy_(rows.permute(tensor.order)
                   .reshape({-1})
                   .narrow(0, from - first * row, to - from));
  }
}

}  // namespace

ModelsFilledLater::ModelsFilledLater()
    : before_(std::exchange(models_are_filled_later, true)) {}

ModelsFilledLater::~ModelsFilledLater() { models_are_filled_later = before_; }

Tensor new_parameter(at::IntArrayRef shape, const FirstValue& value,
                     at::MemoryFormat format) {
  const at::TensorOptions options = new_layer_tensor();
  const bool on_meta = options.device().is_meta();
  if (on_meta || models_are_filled_later) {
    const Tensor form = at::empty(shape, options.device(at::kMeta)).contiguous(format);
    return on_meta ? form : to_be_filled(form, value);
  }
  Tensor tensor = at::empty(shape, options);
  make_piece(value, whole_tensor("", tensor), tensor.view({-1}));
  return tensor.contiguous(format);
}

Tensor new_part(at::IntArrayRef shape, const FirstValue& value,
                const ParameterCut& cut) {
  if (cut.is_whole()) return new_parameter(shape, value);
  const at::TensorOptions options = new_layer_tensor();
  if (options.device().is_meta() || models_are_filled_later)
    return new_parameter(shape, value);
  Tensor tensor = at::empty(shape, options);
  fill_part(value, cut_spec(cut), tensor.view({-1}));
  return tensor;
}

const FirstValue* first_value_of(const Tensor& tensor) {
  if (!tensor.has_storage()) return nullptr;
  const c10::DataPtr& memory =
      tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  const bool later = memory.get_deleter() == delete_first_value;
  return later ? static_cast<const FirstValue*>(memory.get_context()) : nullptr;
}

void make_piece(const FirstValue& value, const StateTensor& piece, const Tensor& out) {
  const TensorSpec& spec = piece.spec;
  COHORT_CHECK(spec.begin >= 0 && spec.end <= spec.box_numel() &&
                   out.numel() == spec.end - spec.begin,
               "elements ", spec.begin, " to ", spec.end, " of ", spec.box_numel());
  const c10::NoGradGuard no_grad;
  if (value.low == value.high && value.deviation == 0) {
    Tensor(out).fill_(value.low);
    return;
  }
  const BoxMap box(spec.box, spec.numel());
  for (int64_t at = spec.begin; at < spec.end;) {
    const int64_t count = std::min(box.run_from(at), spec.end - at);
    Tensor run = out.narrow(0, at - spec.begin, count);
    if (piece.order.empty())
      fill(value, run, box.to_whole(at));
    else
      make_rows(value, piece, box.to_whole(at), run);
    at += count;
  }
}

void give_first_values(const Block& block) {
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < block.parameters().size(); ++i) {
    Tensor tensor = block.parameters()[i].tensor;
    const FirstValue* const value = first_value_of(tensor);
    if (!value) continue;
    const Tensor filled =
        at::empty_strided(tensor.sizes(), tensor.strides(), at::kFloat);
    const Tensor flat = filled.as_strided({filled.numel()}, {1});
    const auto cuts = block.cuts();
    if (cuts.empty() || cuts[i].is_whole())
      make_piece(*value, whole_tensor("", tensor), flat);
    else
      fill_part(*value, parameter_spec(block, i), flat);
    tensor.set_data(filled);
  }
}

void give_first_values(const Chain& chain) {
  for (const auto& block : chain.blocks) give_first_values(*block);
}

}  // namespace cohort
