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

namespace cohort {
namespace {

constexpr size_t kNamed = 3;  // of a kind of trouble; more do not help

using ByName = std::map<std::string, Tensor>;

std::vector<std::string> names_without(const ByName& tensors, const ByName& others) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors)
    if (!others.count(name)) names.push_back(name);
  return names;
}

ByName state_of(const Chain& chain) {
  ByName state;
  for (const auto& [name, tensor] : chain.parameters()) state[name] = tensor.detach();
  for (const auto& [name, tensor] : chain.buffers()) state[name] = tensor;
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
Trouble absent(std::string kind, const ByName& wanted, const ByName& there) {
  Trouble trouble(std::move(kind));
  const auto instead = names_without(there, wanted);
  for (const auto& name : names_without(wanted, there)) {
    const std::string close = trouble.full() ? "" : nearest(name, instead);
    trouble.add(close.empty() ? text("'", name, "'")
                              : text("'", name, "' (nearest: '", close, "')"));
  }
  return trouble;
}

Trouble misshapen(const ByName& model, const ByName& file) {
  Trouble trouble("of another form");
  for (const auto& [name, tensor] : model) {
    const auto found = file.find(name);
    if (found == file.end()) continue;
    const Tensor& value = found->second;
    if (value.sizes() != tensor.sizes())
      trouble.add(text("'", name, "' is ", format_shape(value.sizes()), ", expected ",
                       format_shape(tensor.sizes())));
    else if (tensor.is_floating_point() && !value.is_floating_point())
      trouble.add(text("'", name, "' is ", value.scalar_type(), ", expected ",
                       tensor.scalar_type()));
  }
  return trouble;
}

}  // namespace

void load_weights(const std::string& path, const Chain& chain) {
  give_first_values(chain);
  const ByName model = state_of(chain);
  const ByName file = read_state(path);
  const std::string trouble = absent("missing in the file", model, file).line() +
                              absent("unknown to the model", file, model).line() +
                              misshapen(model, file).line();
  if (!trouble.empty())
    throw CheckpointError(text("[checkpoint.weights] ", path,
                               ": its tensors are not the model's", trouble));
  const c10::NoGradGuard no_grad;
  for (const auto& [name, tensor] : model) tensor.copy_(file.at(name));
}

}  // namespace cohort
