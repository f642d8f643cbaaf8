// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/fault_point.h"
#include "cohort/data/synthetic.h"
#include "cohort/nn/models.h"
#include "cohort/train/testing_reporter.h"
#include "cohort/train/trainer.h"

namespace cohort::test {

// A run in which ranks die, for tests of the Trainer.
inline TrainerOptions exact_run(int ranks, int shard) {
  TrainerOptions options;
  options.epochs = 2;
  options.batch = 30;  // 100 samples: 4 steps per epoch
  options.slices = 6;
  options.layout = {.dp = ranks, .shard = shard};
  options.rate.base = 0.02;
  options.step.exact = true;
  options.step.elastic = true;
  options.elastic = true;
  options.started = std::chrono::system_clock::now();
  return options;
}

// One rank as a process would be: when it dies, all it had is gone.
struct Life {
  std::unique_ptr<Dataset> data = make_synthetic({.size = 100, .shape = {1, 28, 28}});
  std::unique_ptr<Dataset> valid = make_synthetic({.size = 37, .shape = {1, 28, 28}});
  Chain chain;
  std::atomic<int> stop{0};
  std::unique_ptr<Trainer> trainer;

  Life(const TrainerOptions& options, uint64_t seed, FaultPlan* faults = nullptr)
      : chain(make_cnn({.width = 2}, {.seed = seed})) {
    trainer = std::make_unique<Trainer>(chain, *data, valid.get(), options, stop,
                                        TrainerServices{.faults = faults});
  }
};

// Trains through every one of `faults`, in a new world after each, which `connect`
// makes by its generation.
using Reconnect = std::function<std::unique_ptr<Communicator>(int generation)>;
inline DoneEvent train_through(Communicator& first, const Reconnect& connect,
                               const TrainerOptions& options, FaultPlan& faults,
                               Recorder& reporter) {
  std::vector<std::unique_ptr<Communicator>> worlds;
  auto life = std::make_unique<Life>(options, 2, &faults);
  Communicator* comm = &first;
  for (int generation = 1;; ++generation) {
    try {
      life->trainer->enter(*comm, comm->rank() == 0 ? &reporter : nullptr);
      return life->trainer->fit();
    } catch (const InjectedFault& fault) {
      comm->abort(fault.what());
      life = std::make_unique<Life>(options, 77,
                                    &faults);  // other weights: none may be kept
    } catch (const CommError& error) {
      comm->abort(error.what());
    }
    worlds.push_back(connect(generation));
    comm = worlds.back().get();
  }
}

}  // namespace cohort::test
