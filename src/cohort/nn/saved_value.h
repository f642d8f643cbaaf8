// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace cohort {

// What is no tensor, in the form in which autograd keeps it for a backward.
template <typename Value>
struct SavedValue final : torch::CustomClassHolder {
  explicit SavedValue(Value value) : value(std::move(value)) {}
  Value value;
};

template <typename Value>
void save_value(torch::autograd::AutogradContext& context, const char* name,
                Value value) {
  context.saved_data[name] = c10::IValue::make_capsule(
      c10::make_intrusive<SavedValue<Value>>(std::move(value)));
}

// As it was saved, with that name and type. Lives as long as the context.
template <typename Value>
const Value& saved_value(torch::autograd::AutogradContext& context, const char* name) {
  const auto holder = context.saved_data[name].toCapsule();
  return static_cast<const SavedValue<Value>&>(*holder).value;
}

}  // namespace cohort
