// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/transformer_shape.h"

#include <string_view>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/nn/cut_parameter.h"

namespace cohort {
namespace {

void require_multiple(std::string_view what, int64_t number, std::string_view of,
                      int64_t divisor) {
  if (number % divisor == 0) return;
  throw ConfigError(text("[nn] ", what, "=", number, " with ", of, "=", divisor,
                         "; legal: a multiple of that"));
}

}  // namespace

void require_shape(const TransformerShape& shape, const TensorPart& part) {
  const std::pair<std::string_view, int64_t> all[] = {
      {"vocab", shape.vocab},      {"context", shape.context}, {"width", shape.width},
      {"hidden", shape.hidden},    {"depth", shape.depth},     {"heads", shape.heads},
      {"kv_heads", shape.kv_heads}};
  for (const auto& [name, value] : all)
    if (value < 1)
      throw ConfigError(text("[nn] ", name, "=", value, "; legal: 1 or more"));
  require_multiple("width", shape.width, "heads", shape.heads);
  require_multiple("heads", shape.heads, "kv_heads", shape.kv_heads);
  if (shape.rotary)
    require_multiple("width of a head", shape.width / shape.heads, "rotary pairs", 2);
  require_even("heads", shape.heads, part);
  require_even("kv_heads", shape.kv_heads, part);
  require_even("a hidden width", shape.hidden, part);
  if (part.sequence) require_even("a sequence", shape.context, part);
  require_some("a vocabulary", shape.vocab, part);
}

}  // namespace cohort
