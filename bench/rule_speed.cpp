// SPDX-License-Identifier: Apache-2.0
// What update rules cost, in one run:
//   rule_speed [SHARD]                          one rank
//   cohort launch -n 2 -- rule_speed [SHARD]    several, which cut state to that level
// Prints a row for each rule: medians of a step of six linear layers of 2,048, and of
// its part in which gradients are looked at together and weights updated. Rules take
// turns, so that drift hits all alike.
#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cohort/comm/peer_memory.h"
#include "cohort/core/freed_memory.h"
#include "cohort/engine/executor.h"
#include "cohort/nn/models.h"
#include "cohort/session.h"
#include "cohort/step/generator.h"

namespace {

constexpr int kRounds = 4;
constexpr int kSteps = 8;  // in a round
constexpr int64_t kWidth = 2048;

// One rule, with its model and its times.
class Contestant {
 public:
  Contestant(const char* name, double clip, int shard, cohort::Communicator& comm)
      : name_(name),
        clip_(clip),
        input_(at::randn({8, kWidth})),
        chain_(cohort::make_linear_stack({.width = kWidth, .depth = 6}, {})),
        rule_(cohort::make_update_rule({.name = name})) {
    cohort::GeneratorOptions step{
        .slices = comm.size(),
        .clip = clip > 0,
        .tensor_sums = rule_->reductions() > 0,
        .optimizer_states = static_cast<int>(rule_->states().size()),
        .shares_memory = cohort::shares_memory(comm),
        .join_alignment = cohort::join_alignment(comm)};
    executor_ = std::make_unique<cohort::Executor>(
        chain_,
        cohort::generate(cohort::specs_of(chain_), {.dp = comm.size(), .shard = shard},
                         step),
        *rule_, comm, cohort::ExecutorOptions{.clip = clip});
  }

  void run(int steps, bool counts) {
    for (int i = 0; i < steps; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const auto result =
          executor_->run({.step = step_++, .rate = 1e-4, .batch = [&](int) {
                            return cohort::Batch::of({{"input", input_}});
                          }});
      const std::chrono::duration<double> took =
          std::chrono::steady_clock::now() - begin;
      if (!counts) continue;
      seconds_.push_back(took.count());
      updates_.push_back(result.split.update);
    }
  }

  void print() {
    std::printf("%-5s%s  %7.2f ms per step, %6.2f ms of it norm and update\n", name_,
                clip_ > 0 ? " clipped" : "        ", 1e3 * median(seconds_),
                1e3 * median(updates_));
  }

 private:
  static double median(std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    return (values[values.size() / 2] + values[(values.size() - 1) / 2]) / 2;
  }

  const char* name_;
  double clip_;
  cohort::Tensor input_;
  cohort::Chain chain_;
  std::unique_ptr<cohort::UpdateRule> rule_;
  std::unique_ptr<cohort::Executor> executor_;
  std::vector<double> seconds_, updates_;
  int64_t step_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  cohort::keep_freed_memory();
  auto session = cohort::Session::from_env();
  const int shard = argc > 1 ? std::atoi(argv[1]) : 0;
  std::vector<std::unique_ptr<Contestant>> all;
  for (const auto& [name, clip] : {std::pair("sgd", 0.0),
                                   {"sgd", 1.0},
                                   {"lars", 0.0},
                                   {"lars", 1.0},
                                   {"adam", 0.0},
                                   {"adam", 1.0},
                                   {"lamb", 0.0},
                                   {"lamb", 1.0}})
    all.push_back(std::make_unique<Contestant>(name, clip, shard, session.comm()));
  for (auto& one : all) one->run(2, false);
  for (int round = 0; round < kRounds; ++round)
    for (auto& one : all) one->run(kSteps, true);
  if (session.rank() == 0)
    for (auto& one : all) one->print();
  return 0;
}
