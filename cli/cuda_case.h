// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench_train.h"
#include "cohort/block.h"
#include "cohort/data/dataset.h"
#include "cohort/engine/block_measure.h"
#include "cohort/layers.h"
#include "cohort/step/generator.h"
#include "cohort/step/layout.h"
#include "cohort/update_rule.h"

namespace cohort::cli {

// A model that `cohort bench train --device cuda` knows.
struct CudaCase {
  std::string_view name;
  int64_t batch;  // samples per rank and step
  // ConfigError where the layers cannot be cut so.
  Chain (*make)(const TensorPart& part);
  // So many samples. Noise: how long a step takes does not depend on them.
  Batch (*samples)(int64_t count, at::Device device);
  int64_t tokens = 0;        // per sample; 0: it has none
  const char* rule = "sgd";  // for updates
  double clip = 0;           // largest norm of the gradient; 0: any

  int64_t batch_of(const BenchTrainArgs& args) const {
    return args.batch > 0 ? args.batch : batch;
  }
};

// ConfigError with the nearest for a name that is not there.
const CudaCase& find_cuda_case(const std::string& name);

// So many samples, on that GPU.
Batch cuda_batch(const CudaCase& bench, int64_t samples, int gpu = 0);

// What a rank has of each layer.
TensorPart cuda_part(const Layout& layout, int rank);

// ConfigError where the layers cannot be cut as the layout says.
void require_parts(const CudaCase& bench, const Layout& layout);

// "tp=2, pp=2, shard=0"; without tp or pp where it is 1.
std::string layout_words(const Layout& layout);

// How all of its steps are made: there are as many slices as ranks. ConfigError for a
// precision that there is not.
GeneratorOptions cuda_step(const CudaCase& bench, const BenchTrainArgs& args, int ranks,
                           MemoryIn memory);
UpdateOptions cuda_update(const CudaCase& bench);

// What the blocks of a part need and compute, on a model without memory; nothing where
// that cannot be counted.
std::optional<std::vector<BlockMeasure>> count_cuda_blocks(const CudaCase& bench,
                                                           const TensorPart& part = {});

}  // namespace cohort::cli
