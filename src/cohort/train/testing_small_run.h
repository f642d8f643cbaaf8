// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "cohort/data/synthetic.h"
#include "cohort/nn/models.h"
#include "cohort/train/testing_reporter.h"
#include "cohort/train/trainer.h"

namespace cohort::test {

// A run that takes no time, for tests of the Trainer.
inline TrainerOptions small_run(int ranks) {
  TrainerOptions options;
  options.epochs = 2;
  options.batch = 30;  // 100 samples: 4 steps per epoch, the last with 10
  options.slices = 6;
  options.layout.dp = ranks;
  options.rate.base = 0.02;
  options.started = std::chrono::system_clock::now();
  return options;
}

struct SmallRun {
  std::unique_ptr<Dataset> data = make_synthetic({.size = 100, .shape = {1, 28, 28}});
  std::unique_ptr<Dataset> valid = make_synthetic({.size = 37, .shape = {1, 28, 28}});
  Chain chain = make_cnn({.width = 4}, {.seed = 2});
  Recorder recorder;
  std::atomic<int> stop{0};
  TrainerServices services;

  DoneEvent fit(Communicator& comm, const TrainerOptions& options) {
    Trainer trainer(chain, *data, valid.get(), options, stop, services);
    trainer.enter(comm, comm.rank() == 0 ? &recorder : nullptr);
    return trainer.fit();
  }
};

}  // namespace cohort::test
