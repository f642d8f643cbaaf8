// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cohort/checkpoint/testing_checkpoint.h"
#include "cohort/core/hash.h"
#include "cohort/engine/executor.h"
#include "cohort/nn/models.h"
#include "cohort/step/generator.h"
#include "cohort/train/backup.h"
#include "cohort/train/testing_reporter.h"

// For tests: worlds of threads that train something small, and an agent's memory.
namespace cohort::test {

// Keeps pages as an agent would, for all ranks of a test.
class FakeAgent final : public PageHolder {
 public:
  ~FakeAgent() override {
    for (const auto& [name, fd] : fds_) ::close(fd);
  }
  void hold(const std::string& name, int fd) override {
    const std::lock_guard lock(mutex_);
    if (fds_.count(name)) ::close(fds_[name]);
    fds_[name] = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  }
  std::vector<HeldPages> held() override {
    const std::lock_guard lock(mutex_);
    std::vector<HeldPages> all;
    for (const auto& [name, fd] : fds_)
      all.push_back({name, ::fcntl(fd, F_DUPFD_CLOEXEC, 0)});
    return all;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> fds_;
};

struct SmallTask {
  Layout layout;
  std::string optimizer = "sgd";
  at::ScalarType dtype = at::kFloat;
  SamplerOptions samples{.size = 44, .batch = 12, .slices = 4, .seed = 3};
  uint64_t weights = 5;  // seed of the first ones
};

// A rank that trains, and keeps what it has.
class SmallRank {
 public:
  SmallRank(const SmallTask& task, Communicator& comm, Backup& holder,
            Reporter* reporter = nullptr)
      : sampler_(task.samples),
        chain_(make_mlp({.inputs = 12, .width = 16, .depth = 1, .dropout = 0},
                        {.seed = task.weights})),
        rule_(make_update_rule({.name = task.optimizer})),
        executor_(
            chain_,
            generate(specs_of(chain_), task.layout,
                     {.slices = task.samples.slices,
                      .vote = true,
                      .exact = true,
                      .precision = {.compute = task.dtype, .reduce = task.dtype},
                      .optimizer_states = static_cast<int>(rule_->states().size())}),
            *rule_, comm, {}),
        holder_(holder) {
    holder_.begin({.comm = &comm,
                   .runner = &executor_,
                   .sampler = &sampler_,
                   .layout = task.layout.text(),
                   .reporter = comm.rank() == 0 ? reporter : nullptr});
  }

  // Returns the step it goes on from.
  int64_t restore() {
    if (const auto run = holder_.restore()) step_ = run->step;
    return step_;
  }
  void train(int64_t until) {
    while (step_ < until) {
      const Position position = sampler_.position(step_);
      const auto result =
          executor_.run({.step = step_, .rate = 0.1, .batch = [&](int slice) {
                           return batch(sampler_.slice(position, slice));
                         }});
      loss_ = result.loss;
      ++step_;
      holder_.after_step(state());
    }
  }
  bool finish() { return holder_.finish(state()); }
  RunState state() const { return {.step = step_, .metrics = {{"loss", loss_}}}; }
  Executor& executor() { return executor_; }

  // Collective; of all weights.
  uint64_t hash() { return executor_.weights_hash(); }

 private:
  static Batch batch(const std::vector<int64_t>& ids) {
    const Tensor numbers = at::tensor(ids, at::kLong);
    return Batch::of(
        {{"input",
          at::arange(12, at::kFloat).add(numbers.view({-1, 1}).mul(0.7)).sin()},
         {"target", numbers.remainder(10)}});
  }

  Sampler sampler_;
  Chain chain_;
  std::unique_ptr<UpdateRule> rule_;
  Executor executor_;
  Backup& holder_;
  int64_t step_ = 0;
  double loss_ = 0;
};

// Runs `body` on every rank of a world of threads; what each of them threw. Defined in
// backup_test.cpp.
std::vector<std::string> in_world(int size,
                                  const std::function<void(Communicator& comm)>& body,
                                  int generation = 0);

inline void expect_no_errors(const std::vector<std::string>& errors) {
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

}  // namespace cohort::test
