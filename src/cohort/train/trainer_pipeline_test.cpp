// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "cohort/data/synthetic.h"
#include "cohort/nn/models.h"
#include "cohort/train/testing_reporter.h"
#include "cohort/train/trainer.h"
#include "support/ranks.h"

namespace cohort {
namespace {

// Four steps an epoch, of six slices, over as many stages as there are ranks, which
// compute next to nothing. Returns what was noted, on rank 0.
std::string notes_of_pipeline(Communicator& comm, int epochs, const Augment& augment) {
  const auto data = make_synthetic({.size = 96, .shape = {16}});
  Chain chain = make_mlp({.inputs = 16, .width = 16, .depth = 3}, {.seed = 2});
  TrainerOptions options;
  options.epochs = epochs;
  options.batch = 24;
  options.slices = 6;
  options.layout.pp = comm.size();
  options.rate.base = 0.02;
  options.started = std::chrono::system_clock::now();
  options.augment = augment;
  test::Recorder recorder;
  std::atomic<int> stop{0};
  Trainer trainer(chain, *data, nullptr, options, stop);
  trainer.enter(comm, comm.rank() == 0 ? &recorder : nullptr);
  trainer.fit();
  return recorder.notes;
}

TEST(Pipeline, EachStageLoadsASampleOnceAnEpoch) {
  test::run_ranks({.backend = "local", .size = 3}, [](Communicator& comm) {
    int64_t samples = 0;
    notes_of_pipeline(comm, 2, [&](Batch& batch, int64_t) {
      samples += static_cast<int64_t>(batch.ids.size());
    });
    EXPECT_EQ(samples, 2 * 96);
  });
}

}  // namespace
}  // namespace cohort
