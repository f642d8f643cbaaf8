// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/load_weights.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "cohort/checkpoint/tensor_source.h"
#include "cohort/checkpoint/weight_names.h"
#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/core/nearest.h"
#include "cohort/nn/first_value.h"
#include "cohort/step/chain_specs.h"
#include "cohort/step/piece_overlap.h"

namespace cohort {
namespace {

constexpr size_t kNamed = 3;  // names told per kind of trouble; more do not help

// A tensor of the model, and what of the whole it is.
struct ModelTensor {
  Tensor tensor;
  TensorSpec spec;
};
using ModelState = std::map<std::string, ModelTensor>;
using Specs = std::map<std::string, TensorSpec>;

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

// Names, each with the nearest of those that could be meant.
Trouble absent(std::string kind, const std::vector<std::string>& names,
               const std::vector<std::string>& instead) {
  Trouble trouble(std::move(kind));
  for (const auto& name : names) {
    const std::string close = trouble.full() ? "" : nearest(name, instead);
    trouble.add(close.empty() ? text("'", name, "'")
                              : text("'", name, "' (nearest: '", close, "')"));
  }
  return trouble;
}

Trouble repeated(const WeightNames& names) {
  Trouble trouble("twice in the file");
  for (const auto& [second, name] : names.twice)
    trouble.add(
        text("'", name, "', as '", names.in_file.at(name), "' and as '", second, "'"));
  return trouble;
}

Trouble misshapen(const Specs& model, const WeightNames& names, const Specs& file) {
  Trouble trouble("of another form");
  const auto compare = [&](const std::string& given, const std::string& name) {
    const TensorSpec &value = file.at(given), &own = model.at(name);
    if (value.shape != own.shape)
      trouble.add(text("'", given, "' is ", format_shape(value.shape), ", expected ",
                       format_shape(own.shape)));
    else if (at::isFloatingType(own.dtype) && !at::isFloatingType(value.dtype))
      trouble.add(text("'", given, "' is ", value.dtype, ", expected ", own.dtype));
  };
  for (const auto& [name, given] : names.in_file) compare(given, name);
  for (const auto& [given, name] : names.twins) compare(given, name);
  return trouble;
}

[[noreturn]] void refuse_weights(const std::string& path, const std::string& trouble) {
  throw CheckpointError(text("[checkpoint.weights] ", path,
                             ": its tensors are not the model's", trouble));
}

template <typename Map>
std::set<std::string> keys_of(const Map& map) {
  std::set<std::string> names;
  for (const auto& entry : map) names.insert(entry.first);
  return names;
}

WeightNames matched(const TensorSource& source, const Specs& model) {
  Specs file;
  for (const auto& tensor : source.tensors) file[tensor.spec.name] = tensor.spec;
  WeightNames names = match_names(keys_of(model), keys_of(file));
  const std::string trouble =
      absent("missing in the file", names.missing, names.unknown).line() +
      absent("unknown to the model", names.unknown, names.missing).line() +
      repeated(names).line() + misshapen(model, names, file).line();
  if (!trouble.empty()) refuse_weights(source.path, trouble);
  return names;
}

// A head that is not the embedding's copy is that of a model that is not tied.
void require_twins(const TensorSource& source, const WeightNames& names) {
  for (const auto& [given, name] : names.twins) {
    const std::string& tied = names.in_file.at(name);
    const Tensor head = source.read(given);
    if (!at::equal(head, source.read(tied).to(head.scalar_type())))
      refuse_weights(source.path, text("; '", given, "' is not '", tied,
                                       "', and the model has one tensor for both"));
  }
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
  Specs specs;
  for (const auto& [name, own] : model) specs[name] = own.spec;
  const TensorSource source = open_weights(path);
  const WeightNames names = matched(source, specs);
  require_twins(source, names);
  const c10::NoGradGuard no_grad;
  for (const auto& [name, own] : model) take(source.read(names.in_file.at(name)), own);
}

std::string check_weights(const std::string& path, std::span<const TensorSpec> model) {
  Specs specs;
  for (const auto& spec : model) specs[spec.name] = spec;
  const WeightNames names = matched(open_weights(path), specs);
  Trouble unused("passed over, for the model does without"), tied("tied in the file");
  for (const auto& name : names.unused) unused.add(text("'", name, "'"));
  for (const auto& [given, name] : names.tied_in_file)
    tied.add(text("'", name, "' begins as '", given, "'"));
  const std::string told = unused.line() + tied.line();
  return told.empty() ? told : text("[checkpoint.weights] ", path, told);
}

}  // namespace cohort
