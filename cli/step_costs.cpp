// SPDX-License-Identifier: Apache-2.0
#include "cli/step_costs.h"

#include <algorithm>
#include <typeinfo>

#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/engine/block_timing.h"

namespace cohort::cli {
namespace {

// A block is run where it takes no more, about: a second or two and a gigabyte.
constexpr double kMostFlops = 50e9;  // forward and backward of one sample
constexpr double kMostBytes = 1e9;   // with four samples
constexpr double kMostSamples = 4;

double parameter_bytes(const Block& block) {
  double bytes = 0;
  for (const auto& [name, tensor] : block.parameters())
    bytes += static_cast<double>(tensor.numel() * tensor.element_size());
  return bytes;
}

bool is_small(const Block& block, const BlockMeasure& needs) {
  const double bytes = 2 * parameter_bytes(block) +  // and as many of gradients
                       needs.activation_bytes.at(kMostSamples) +
                       needs.scratch_bytes.at(kMostSamples);
  return 3 * needs.flops.at(1) <= kMostFlops && bytes <= kMostBytes;
}

bool same_line(const Line& a, const Line& b) {
  return a.fixed == b.fixed && a.per_sample == b.per_sample;
}

bool same_needs(const BlockMeasure& a, const BlockMeasure& b) {
  return same_line(a.flops, b.flops) && same_line(a.output_bytes, b.output_bytes) &&
         same_line(a.activation_bytes, b.activation_bytes) &&
         same_line(a.scratch_bytes, b.scratch_bytes);
}

bool same_form(const Block& a, const Block& b) {
  return typeid(a) == typeid(b) &&
         std::ranges::equal(a.parameters(), b.parameters(),
                            [](const NamedTensor& x, const NamedTensor& y) {
                              return x.tensor.sizes() == y.tensor.sizes();
                            });
}

// The first block that is like it; itself if there is none. The first block of all has
// no gradient of its input, the last one has the loss.
int like_of(const Chain& chain, std::span<const BlockCount> counts, int block) {
  const int last = static_cast<int>(chain.blocks.size()) - 1;
  for (int b = 1; b < block && block < last; ++b)
    if (same_needs(counts[b].needs, counts[block].needs) &&
        same_form(*chain.blocks[b], *chain.blocks[block]))
      return b;
  return block;
}

// `by_flops`: so many of all.
std::string source_of(int by_flops, int all, double rate) {
  if (by_flops == 0) return kBlocksRunHere;
  const std::string product =
      text("by their FLOPs at the ", format_fixed(rate / 1e9, 0),
           " GFLOP/s of a matrix product here");
  if (by_flops < all)
    return text(kBlocksRunHere, ", ", by_flops, " of ", all, " ", product);
  return text("blocks ", product, ", in float32 with 1 thread");
}

}  // namespace

BlockCosts time_blocks(const StepSetting& setting, std::span<const BlockCount> counts,
                       const Dataset& data) {
  const Chain form = setting.make_form();
  const auto batch = [&](int64_t samples) { return some_samples(form, data, samples); };
  const int size = static_cast<int>(counts.size());
  BlockCosts costs;
  double rate = 0;
  int by_flops = 0;
  const auto take_flops = [&](int block) {
    if (by_flops++ == 0) rate = product_rate();
    return cost_of_flops(counts[block].needs, rate);
  };
  for (int b = 0; b < size; ++b) {
    if (!is_small(*form.blocks[b], counts[b].needs)) {
      costs.blocks.push_back(take_flops(b));
    } else if (const int like = like_of(form, counts, b); like < b) {
      costs.blocks.push_back(costs.blocks[like]);
    } else {
      try {  // on a chain of its own: what it takes goes with it
        costs.blocks.push_back(time_block(setting.make_form(), b, counts, batch));
      } catch (const c10::Error&) {  // it does not take the values made up for it
        costs.blocks.push_back(take_flops(b));
      }
    }
  }
  costs.from = source_of(by_flops, size, rate);
  return costs;
}

}  // namespace cohort::cli
