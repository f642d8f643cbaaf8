// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cli/bench_train.h"
#include "cohort/data/dataset.h"
#include "cohort/optim/update_rule.h"
#include "cohort/step/block.h"
#include "cohort/step/generator.h"

namespace cohort::cli {

// A model that `cohort bench train --device cuda` knows.
struct CudaCase {
  std::string_view name;
  int64_t batch;  // samples of a rank and step
  int64_t pixels;
  int64_t classes;
  Chain (*make)();

  int64_t batch_of(const BenchTrainArgs& args) const {
    return args.batch > 0 ? args.batch : batch;
  }
};

// ConfigError with the nearest for a name that is not there.
const CudaCase& find_cuda_case(const std::string& name);

// So many samples, on that GPU. Noise: how long a step takes does not depend on them.
Batch cuda_batch(const CudaCase& bench, int64_t samples, int gpu = 0);

// The same without values, on the meta device.
Batch cuda_shapes(const CudaCase& bench, int64_t samples);

// How all of its steps are made; a rank computes one slice. ConfigError for a precision
// that there is not.
GeneratorOptions cuda_step(const BenchTrainArgs& args, int ranks, MemoryIn memory);
UpdateOptions cuda_update();

}  // namespace cohort::cli
