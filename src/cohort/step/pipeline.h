// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

namespace cohort {

// The order in which the places of a pipeline take their slices.
enum class PipelineOrder { kGpipe, kOneForwardOneBackward, kInterleaved, kZeroBubble };
std::string_view name_of(PipelineOrder order);  // as pipeline.schedule has it

// What a user may say of a pipeline besides its depth. An order means nothing where
// there is none.
struct PipelineOptions {
  PipelineOrder order = PipelineOrder::kOneForwardOneBackward;
  int stages_per_place = 1;
  // By stage, the block behind its last one; empty: cut so that the most costly stage
  // costs least.
  std::vector<int> ends = {};
  // How fast places are, beside one another; empty: all alike.
  std::vector<double> speeds = {};
  // Seconds of each block at the fastest place; empty: what the specs of blocks count.
  std::vector<double> costs = {};
};

// The values of four keys, as a user writes them: "1f1b", stages at each place (0: 2 if
// interleaved, else 1), "auto" or "0-3,4-7", "" or "1,1,2". ConfigError with the legal
// ones.
struct PipelineText {
  std::string_view schedule = "1f1b";
  int stages_per_place = 0;
  std::string_view cut = "auto";
  std::string_view speeds = "";
};
PipelineOptions parse_pipeline(const PipelineText& text);

// ConfigError if the options name stages or places of another pipeline. One place needs
// none: what they say of several, or of a cut, is refused, but not an order.
void require_places(int places, const PipelineOptions& options);
// The same, and unless so many blocks at so many places can be cut as the options say.
void require_stages(int blocks, int places, const PipelineOptions& options);

}  // namespace cohort
