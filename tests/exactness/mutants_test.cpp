// SPDX-License-Identifier: Apache-2.0
// Whatever is done to a valid schedule: the checker refuses it, or it still trains to
// the same weights.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "cohort/engine/executor.h"
#include "cohort/nn/models.h"
#include "cohort/step/generator.h"
#include "cohort/step/testing_mutants.h"
#include "cohort/step/weights_hash.h"
#include "cohort/update_rule.h"
#include "support/gathered_weights.h"
#include "support/ranks.h"

namespace cohort {
namespace {

constexpr int kMutantSlices = 3;  // on 2 ranks: one has two, so there are two roles

struct Case {
  int shard = 0;
  const char* recompute = "none";
  bool clip = false;
  bool elastic = false;
  bool shares = false;  // ranks reach each other's memory
  const char* rule = "sgd";
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "shard=" << c.shard << " recompute=" << c.recompute
             << " clip=" << c.clip << " elastic=" << c.elastic << " shares=" << c.shares
             << ' ' << c.rule;
}

Chain make_chain() { return make_cnn({.width = 2}, {.seed = 3}); }

Batch slice(int index) {
  return Batch::of({{"input", at::arange(2 * 28 * 28, at::kFloat)
                                  .mul(0.37)
                                  .add(11.0 * index)
                                  .sin()
                                  .reshape({2, 1, 28, 28})},
                    {"target", at::arange(2).add(index).remainder(10)}});
}

Schedule schedule_of(const Case& c, int ranks) {
  const Chain chain = make_chain();
  const auto rule = make_update_rule({.name = c.rule});
  return generate(specs_of(chain), {.dp = ranks, .shard = c.shard},
                  {.slices = kMutantSlices,
                   .bucket_bytes = 20'000,
                   .clip = c.clip,
                   .tensor_sums = rule->reductions() > 0,
                   .elastic = c.elastic,
                   .recompute = BlockChoice::parse(c.recompute, "test"),
                   .exact = true,
                   .optimizer_states = static_cast<int>(rule->states().size()),
                   .shares_memory = c.shares});
}

std::string train(const Case& c, const Schedule& schedule, Communicator& comm) {
  Chain chain = make_chain();
  const auto rule = make_update_rule({.name = c.rule});
  Executor executor(chain, schedule, *rule, comm, {.clip = 0.5});
  for (int64_t step = 0; step < 2; ++step)
    executor.run({.step = step, .rate = 0.1, .batch = slice});
  auto weights = test::gathered_weights(executor, comm);
  if (comm.rank() != 0) return "";
  for (const auto& [tensor, data] : executor.state(Holding::kHeld))  // mirrors too
    weights.push_back({text(tensor.spec.name, " from ", tensor.spec.begin), data});
  return weights_hash(weights);
}

class Mutants : public testing::TestWithParam<Case> {};

TEST_P(Mutants, AreRefusedOrTrainToTheSameWeights) {
  const int ranks = 2;
  // One thread makes them, so that every rank runs the same list.
  test::run_ranks({.backend = "local", .size = ranks}, [&](Communicator& comm) {
    at::set_num_threads(1);
    const Schedule valid = schedule_of(GetParam(), ranks);
    const MutantVerdicts verdicts =
        judge_mutants(valid, {.most_exchanges = 400, .seed = 7});
    const std::string wanted = train(GetParam(), valid, comm);
    for (const auto& mutant : verdicts.accepted)
      EXPECT_EQ(train(GetParam(), mutant.schedule, comm), wanted) << mutant.what;
    if (comm.rank() == 0) {
      std::fprintf(stderr, "%lld refused, %zu accepted and run\n",
                   static_cast<long long>(verdicts.refused), verdicts.accepted.size());
      EXPECT_GT(verdicts.refused, static_cast<int64_t>(verdicts.accepted.size()));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Levels, Mutants,
    testing::Values(Case{0}, Case{0, "every=2"}, Case{1, "all"}, Case{2, "none", true},
                    Case{3}, Case{3, "all", true}, Case{3, "blocks=1-2"},
                    Case{0, "none", false, true}, Case{1, "none", true, true},
                    Case{2, "all", false, true}, Case{3, "none", false, true},
                    Case{0, "none", false, false, true},
                    Case{1, "none", false, false, true},
                    Case{2, "none", false, false, true},
                    Case{3, "none", false, false, true},
                    Case{1, "none", false, false, true, "lars"},
                    Case{3, "all", true, true, false, "lamb"}));

}  // namespace
}  // namespace cohort
