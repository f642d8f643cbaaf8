// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/load_weights.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <map>
#include <vector>

#include "cohort/checkpoint/safetensors.h"
#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/core/nearest.h"
#include "cohort/nn/first_value.h"
#include "cohort/step/chain_specs.h"
#include "cohort/step/piece_overlap.h"

namespace cohort {
namespace {

constexpr size_t kNamed = 3;  // of a kind of trouble; more do not help

using ByName = std::map<std::string, Tensor>;

// A tensor of the model, and what of the whole it is.
struct ModelTensor {
  Tensor tensor;
  TensorSpec spec;
};
using ModelState = std::map<std::string, ModelTensor>;

template <typename Some, typename Others>
std::vector<std::string> names_without(const Some& tensors, const Others& others) {
  std::vector<std::string> names;
  for (const auto& entry : tensors)
    if (!others.count(entry.first)) names.push_back(entry.first);
  return names;
}

ModelState state_of(const Chain& chain) {
  ModelState state;
  const auto parameters = chain.parameters();
  const auto specs = parameter_specs(chain);
  for (size_t i = 0; i < parameters.size(); ++i)
    state[parameters[i].name] = {parameters[i].tensor.detach(), specs[i]};
  for (const auto& [name, tensor] : chain.buffers())
    state[name] = {tensor, spec_of(name, tensor)};
  return state;
}

ByName read_state(const std::string& path) {
  ByName state;
  for (auto& [name, tensor] : read_safetensors(path).tensors)
    if (!name.ends_with(".num_batches_tracked")) state[name] = tensor;
  return state;
}

// One kind of trouble: "missing: 'a', 'b', 'c' and 4 more".
class Trouble {
 public:
  explicit Trouble(std::string kind) : kind_(std::move(kind)) {}

  void add(const std::string& what) {
    if (count_ < kNamed) list_ += text(count_ > 0 ? ", " : "", what);
    ++count_;
  }
  bool full() const { return count_ >= kNamed; }
  std::string line() const {
    if (count_ == 0) return "";
    const std::string more =
        count_ > kNamed ? text(" and ", count_ - kNamed, " more") : "";
    return text("; ", kind_, ": ", list_, more);
  }

 private:
  std::string kind_, list_;
  size_t count_ = 0;
};

// Names of `wanted` that `there` lacks, each with the nearest of those it has instead.
template <typename Wanted, typename There>
Trouble absent(std::string kind, const Wanted& wanted, const There& there) {
  Trouble trouble(std::move(kind));
  const auto instead = names_without(there, wanted);
  for (const auto& name : names_without(wanted, there)) {
    const std::string close = trouble.full() ? "" : nearest(name, instead);
    trouble.add(close.empty() ? text("'", name, "'")
                              : text("'", name, "' (nearest: '", close, "')"));
  }
  return trouble;
}

Trouble misshapen(const ModelState& model, const ByName& file) {
  Trouble trouble("of another form");
  for (const auto& [name, own] : model) {
    const auto found = file.find(name);
    if (found == file.end()) continue;
    const auto& [tensor, spec] = own;
    const Tensor& value = found->second;
    if (value.sizes() != at::IntArrayRef(spec.shape))
      trouble.add(text("'", name, "' is ", format_shape(value.sizes()), ", expected ",
                       format_shape(spec.shape)));
    else if (tensor.is_floating_point() && !value.is_floating_point())
      trouble.add(text("'", name, "' is ", value.scalar_type(), ", expected ",
                       tensor.scalar_type()));
  }
  return trouble;
}

void take(const Tensor& whole, const ModelTensor& own) {
  if (own.spec.box.is_whole()) {
    own.tensor.copy_(whole);
    return;
  }
  const Tensor flat = whole.contiguous().view({-1});
  const Tensor part = own.tensor.view({-1}).narrow(0, 0, own.spec.end);
  copy_overlap({whole_tensor(own.spec.name, whole.contiguous()), flat},
               {{.spec = own.spec}, part});
}

}  // namespace

void load_weights(const std::string& path, const Chain& chain) {
  give_first_values(chain);
  const ModelState model = state_of(chain);
  const ByName file = read_state(path);
  const std::string trouble = absent("missing in the file", model, file).line() +
                              absent("unknown to the model", file, model).line() +
                              misshapen(model, file).line();
  if (!trouble.empty())
    throw CheckpointError(text("[checkpoint.weights] ", path,
                               ": its tensors are not the model's", trouble));
  const c10::NoGradGuard no_grad;
  for (const auto& [name, own] : model) take(file.at(name), own);
}

}  // namespace cohort
