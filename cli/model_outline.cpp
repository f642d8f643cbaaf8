// SPDX-License-Identifier: Apache-2.0
#include "cli/model_outline.h"

#include <chrono>
#include <sstream>
#include <string>

#include "cli/child_answer.h"
#include "cli/step_options.h"
#include "cohort/core/error.h"
#include "cohort/nn/without_memory.h"
#include "cohort/step/pipeline.h"
#include "cohort/train/checked_recipe.h"

namespace cohort::cli {
namespace {

constexpr char kTrained = 't', kFrozen = 'f', kBuffer = 'b';

void add_line(std::ostream& out, char kind, const NamedTensor& named) {
  const auto& [name, tensor] = named;
  out << kind << ' ' << static_cast<int>(tensor.scalar_type()) << ' ' << tensor.dim();
  for (const int64_t size : tensor.sizes()) out << ' ' << size;
  out << ' ' << name << '\n';
}

// The number of blocks, and one line per tensor.
std::string to_text(const Chain& chain) {
  std::ostringstream out;
  out << chain.blocks.size() << '\n';
  for (const auto& named : chain.parameters())
    add_line(out, named.tensor.requires_grad() ? kTrained : kFrozen, named);
  for (const auto& named : chain.buffers()) add_line(out, kBuffer, named);
  return out.str();
}

ModelOutline from_text(const std::string& text) {
  std::istringstream in(text);
  ModelOutline outline;
  in >> outline.blocks;
  for (char kind = 0; in >> kind;) {
    TensorSpec spec;
    int dtype = 0;
    size_t dims = 0;
    in >> dtype >> dims;
    spec.dtype = static_cast<at::ScalarType>(dtype);
    spec.shape.resize(dims);
    for (auto& size : spec.shape) in >> size;
    std::getline(in >> std::ws, spec.name);
    spec.end = spec.numel();
    auto& home = kind == kTrained  ? outline.trained
                 : kind == kFrozen ? outline.frozen
                                   : outline.buffers;
    home.push_back(std::move(spec));
  }
  return outline;
}

// What kept a chain from being made, where the answer should be.
constexpr char kRefused = '!';

std::string tell(const Recipe& recipe, const Config& config, const TensorPart& part) {
  try {
    const ModelsWithoutMemory guard;
    return to_text(checked_chain(recipe, config, part));
  } catch (const ConfigError& error) {
    return kRefused + std::string(error.what());
  }
}

// Long for a model, short for a person.
constexpr std::chrono::seconds kOutlineTime{60};

}  // namespace

std::optional<ModelOutline> outline_of(const Recipe& recipe, const Config& config,
                                       const TensorPart& part) {
  const ChildAnswer answer =
      ask_child([&] { return tell(recipe, config, part); }, kOutlineTime);
  if (!answer.worked) return std::nullopt;
  if (answer.text.starts_with(kRefused)) throw ConfigError(answer.text.substr(1));
  return from_text(answer.text);
}

// Only a choice that names blocks, or a model in parts, needs to know what there is.
void require_blocks(const Recipe& recipe, const Config& config, const Layout& layout) {
  constexpr const char* kKey = "step.recompute";
  const GeneratorOptions step = step_options(config, /*exact=*/false);
  if (!step.recompute.names_blocks() && layout.pp == 1 && layout.tp == 1) return;
  const auto outline = outline_of(recipe, config, tensor_part(config, layout, 0));
  if (!outline) return;
  step.recompute.require_within(outline->blocks, kKey);
  require_stages(outline->blocks, layout.pp, step.pipeline);
}

}  // namespace cohort::cli
