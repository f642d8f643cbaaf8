// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/testing_elastic.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <barrier>

#include "cohort/core/error.h"
#include "cohort/step/checker.h"
#include "cohort/step/generator.h"
#include "support/ranks.h"

namespace cohort::test {

std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << "n=" << way.ranks << " shard=" << way.shard
             << " elastic=" << way.elastic << ' ' << way.dtype << ' ' << way.rule
             << (way.resident ? " resident" : "");
}

std::vector<Way> every_way() {
  std::vector<Way> ways;
  for (int ranks : {2, 3})
    for (int shard : {0, 1, 2, 3})
      for (auto dtype : {at::kFloat, at::kBFloat16})
        ways.push_back({ranks, shard, true, dtype});
  for (int shard : {0, 1, 2, 3}) ways.push_back({3, shard, true, at::kFloat, "lamb"});
  const auto resident = every_resident_way();
  ways.insert(ways.end(), resident.begin(), resident.end());
  return ways;
}

std::vector<Way> every_resident_way() {
  std::vector<Way> ways;
  for (int shard : {0, 1, 2, 3}) {
    ways.push_back({3, shard, true, at::kFloat, "lamb", true});
    ways.push_back({2, shard, true, at::kBFloat16, "adamw", true});
  }
  return ways;
}

Chain make_chain() {
  Chain chain = make_small_net();
  Tensor frozen = chain.parameters().back().tensor;
  frozen.set_requires_grad(false);
  return chain;
}

Rank::Rank(const Way& way, Communicator& comm, FaultPlan* faults, Chain chain)
    : chain_(std::move(chain)),
      rule_(make_update_rule({.name = way.rule})),
      executor_(chain_, schedule_of(chain_, way), *rule_, comm,
                {.update = {.name = way.rule},
                 .decay = {.weight_decay = 0.01},
                 .clip = 0.5,
                 .compute_on = way.resident ? ComputeOn::kStaged : ComputeOn::kHost,
                 .listed_samples = 2 * kSlices},
                {.faults = faults}) {}

Schedule Rank::schedule_of(const Chain& chain, const Way& way) {
  Schedule schedule =
      generate(specs_of(chain), {.dp = way.ranks, .shard = way.shard},
               {.slices = kSlices,
                .bucket_bytes = 20'000,
                .clip = true,
                .tensor_sums = way.rule == std::string("lamb"),
                .elastic = way.elastic,
                .exact = true,
                .precision = {.compute = way.dtype},
                .memory = way.resident ? MemoryIn::kDevice : MemoryIn::kHost,
                .optimizer_states = 2});
  check(schedule, {.elastic = way.elastic});
  return schedule;
}

StepResult Rank::step(int64_t step, const SampleSum& expected) {
  start(step, expected);
  return executor_.result();
}

void Rank::start(int64_t step, const SampleSum& expected) {
  executor_.start({.step = step,
                   .rate = 0.05,
                   .batch = [=](int index) { return small_slice(step, index, 16); },
                   .sample_key = kSampleKey,
                   .expected = expected});
}

Elements elements(Executor& executor, Holding which) {
  Elements all;
  for (const auto& piece : executor.state(which)) {
    const Tensor flat = piece.data.to(at::kFloat);
    const float* values = flat.const_data_ptr<float>();
    for (int64_t i = 0; i < flat.numel(); ++i)
      all[{piece.tensor.spec.name, piece.tensor.spec.begin + i}] = values[i];
  }
  return all;
}

std::vector<Shared> undisturbed(const Way& way) {
  std::vector<Shared> after(kSteps + 1, Shared(way.ranks));
  run_local_ranks(way.ranks, 0, [&](Communicator& comm) {
    Rank rank(way, comm);
    after[0][comm.rank()] = elements(*rank, Holding::kOwned);
    for (int64_t step = 0; step < kSteps; ++step) {
      rank.step(step);
      after[step + 1][comm.rank()] = elements(*rank, Holding::kOwned);
    }
  });
  return after;
}

Elements joined(const Shared& owned) {
  Elements all;
  for (const auto& part : owned) all.insert(part.begin(), part.end());
  return all;
}

void disturb(const Way& way, Fault fault, const After& after) {
  FaultPlan faults;
  fault.count = 2;  // in the second step
  faults.arm(fault);
  std::barrier all_cut(way.ranks), all_done(way.ranks);
  run_local_ranks(way.ranks, 0, [&](Communicator& comm) {
    Rank rank(way, comm, &faults);
    rank.step(0);
    try {
      rank.step(1);
    } catch (const InjectedFault&) {
      comm.abort("the test says so");
    } catch (const CommError& error) {
      comm.abort(error.what());
    }
    all_cut.arrive_and_wait();
    try {
      after(rank, comm);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << comm.rank() << ": " << error.what();
    }
    all_done.arrive_and_wait();  // the others wait for it
  });
  EXPECT_EQ(faults.pending(), 0);
}

}  // namespace cohort::test
