// SPDX-License-Identifier: Apache-2.0
#include "cohort/block.h"

#include <algorithm>
#include <set>

#include "cohort/core/error.h"
#include "cohort/step/action.h"
#include "cohort/step/chain_specs.h"
#include "cohort/step/mesh.h"

namespace cohort {
namespace {

// Each once, though blocks may share them: calls `visit` with the first that has it.
template <typename Visit>
void for_each_parameter(const Chain& chain, const Visit& visit) {
  std::set<const void*> seen;
  for (const auto& block : chain.blocks)
    for (size_t i = 0; i < block->parameters().size(); ++i)
      if (seen.insert(block->parameters()[i].tensor.unsafeGetTensorImpl()).second)
        visit(*block, i);
}

}  // namespace

void add_fields(std::span<const std::string> more, std::vector<std::string>& fields) {
  for (const auto& field : more)
    if (std::ranges::find(fields, field) == fields.end()) fields.push_back(field);
}

std::string_view name_of(BlockCall::When when) {
  constexpr std::string_view kNames[] = {"forward", "backward", "evaluation"};
  return kNames[static_cast<size_t>(when)];
}

std::string BlockCall::text(int64_t samples) const {
  std::string along;
  for (const Axis axis : kNamedAxes)
    if (axes.has(axis)) along += cohort::text(along.empty() ? "" : ",", name_of(axis));
  return cohort::text(name_of(op), " of ", numel_for(samples), " ",
                      c10::toString(dtype), " over ", along);
}

Values cut_graph(const Values& values, bool needs_gradient) {
  Values cut;
  for (const auto& value : values)
    cut.push_back(
        value.detach().requires_grad_(needs_gradient && value.is_floating_point()));
  return cut;
}

TensorSpec parameter_spec(const Block& block, size_t index) {
  const auto& [name, tensor] = block.parameters()[index];
  TensorSpec spec = spec_of(name, tensor);
  const auto cuts = block.cuts();
  if (cuts.empty() || cuts[index].is_whole()) return spec;
  spec.shape = cuts[index].shape;
  spec.box = cuts[index].box;
  spec.end = spec.box_numel();
  COHORT_CHECK(spec.end <= tensor.numel(), name, ": a tensor of ", tensor.numel(),
               " elements for ", spec.end, " of the whole");
  return spec;
}

std::vector<NamedTensor> Chain::parameters() const {
  std::vector<NamedTensor> all;
  for_each_parameter(*this, [&](const Block& block, size_t index) {
    all.push_back(block.parameters()[index]);
  });
  return all;
}

std::vector<TensorSpec> parameter_specs(const Chain& chain) {
  std::vector<TensorSpec> all;
  for_each_parameter(chain, [&](const Block& block, size_t index) {
    all.push_back(parameter_spec(block, index));
  });
  return all;
}

std::vector<NamedTensor> Chain::buffers() const {
  std::vector<NamedTensor> all;
  for (const auto& block : blocks) {
    const auto own = block->buffers();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::vector<std::string> Chain::block_fields() const {
  std::vector<std::string> all;
  for (const auto& block : blocks) add_fields(block->fields(), all);
  return all;
}

std::vector<std::string> Chain::fields() const {
  std::vector<std::string> all = block_fields();
  add_fields(loss.fields, all);
  return all;
}

}  // namespace cohort
