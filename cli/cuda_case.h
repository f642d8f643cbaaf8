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
#include "cohort/step/generator.h"
#include "cohort/update_rule.h"

namespace cohort::cli {

// A model that `cohort bench train --device cuda` knows.
struct CudaCase {
  std::string_view name;
  int64_t batch;  // samples per rank and step
  Chain (*make)();
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

// How all of its steps are made; a rank computes one slice. ConfigError for a precision
// that there is not.
GeneratorOptions cuda_step(const CudaCase& bench, const BenchTrainArgs& args, int ranks,
                           MemoryIn memory);
UpdateOptions cuda_update(const CudaCase& bench);

// What its blocks need and compute, on a model without memory; nothing where that
// cannot be counted.
std::optional<std::vector<BlockMeasure>> count_cuda_blocks(const CudaCase& bench);

}  // namespace cohort::cli
