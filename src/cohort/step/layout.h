// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cohort {

// Which rank holds what: the world is a grid dp x cp x tp x pp, and the state of a
// model is cut over dp to a level.
struct Layout {
  int dp = 1;         // data-parallel ranks
  int tp = 1;         // tensor-parallel ranks
  int pp = 1;         // pipeline stages
  int shard = 0;      // 0 nothing, 1 optimizer state, 2 and gradients, 3 and parameters
  int replicate = 1;  // copies of a sharded state (hybrid)
  int cp = 1;         // ranks that have a part of each sequence
  int ep = 1;         // ranks with different experts, among dp / replicate x cp

  int of_a_replica() const { return cp * tp * pp; }  // ranks that have a model together
  int world() const { return dp * of_a_replica(); }
  std::string text() const;
};

// Reads "dp=2,tp=1,shard=0" for a world of `world` ranks. A missing dp is inferred.
// ConfigError for an unknown key (with the nearest), a value that is no positive
// number, or a product that is not the world.
Layout parse_layout(std::string_view keys, int world);

// Slices of a batch: as many as asked for; or, with 0, one for each data-parallel rank,
// and in a pipeline two for each place of it, as far as there are samples.
int slices_for(int asked, const Layout& layout, int64_t batch);

// For a world that has become another than the layout was made for: stages and parts
// stay, and there are as many data-parallel ranks as it has room for.
Layout fitted(Layout layout, int world);

}  // namespace cohort
