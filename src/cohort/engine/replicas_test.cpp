// SPDX-License-Identifier: Apache-2.0
// Replicas that drift apart: every rank says so, and which tensor of which rank it is.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/engine/executor.h"
#include "cohort/nn/models.h"
#include "cohort/optim/sgd.h"
#include "cohort/step/generator.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using testing::HasSubstr;

struct Case {
  int ranks;
  int shard = 0;
  int replicate = 1;
  int damaged = 1;    // rank
  std::string whose;  // in the message: one where most agree, else all that hold it
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "n=" << c.ranks << " shard=" << c.shard << " replicate=" << c.replicate
             << " damaged=" << c.damaged;
}

// An update that goes wrong in one element, once.
class Faulty final : public ElementwiseRule {
 public:
  explicit Faulty(bool faulty, float by = 1) : waits_(faulty), by_(by) {}
  std::string_view name() const override { return "faulty"; }
  std::span<const StateSpec> states() const override { return {}; }
  void apply(const UpdateStretch<float>& stretch, const ParameterTraits&,
             std::span<const double>, const StepScalars&) const override {
    if (std::exchange(waits_, false)) *stretch.parameter += by_;
  }
  void apply(const UpdateStretch<double>&, const ParameterTraits&,
             std::span<const double>, const StepScalars&) const override {}

 private:
  mutable bool waits_;
  float by_;
};

Batch batch_of(int) {
  return Batch::of(
      {{"input", at::ones({1, 1, 28, 28})}, {"target", at::zeros({1}, at::kLong)}});
}

Schedule schedule_of(const Chain& chain, const Case& c) {
  return generate(specs_of(chain),
                  {.dp = c.ranks, .shard = c.shard, .replicate = c.replicate},
                  {.slices = c.ranks});
}

std::string drift_message(Executor& executor) {
  return executor.compare_replicas().what;
}

class Replicas : public testing::TestWithParam<Case> {};

TEST_P(Replicas, ThatDriftApartAreNamedOnEveryRank) {
  test::run_ranks({.backend = "local", .size = GetParam().ranks},
                  [&](Communicator& comm) {
                    const Case& c = GetParam();
                    Chain chain = make_cnn({.width = 4}, {.seed = 5});
                    const auto rule = make_sgd({});
                    Executor executor(chain, schedule_of(chain, c), *rule, comm, {});
                    executor.run({.step = 0, .rate = 0.1, .batch = batch_of});
                    EXPECT_EQ(drift_message(executor), "");
                    const NamedTensor damaged = chain.parameters()[3];  // a bias
                    if (comm.rank() == c.damaged)
                      damaged.tensor.detach().flatten()[3] += 1;
                    EXPECT_EQ(drift_message(executor), text(damaged.name, c.whose));
                  });
}

INSTANTIATE_TEST_SUITE_P(
    Whole, Replicas,
    testing::Values(Case{2, 0, 1, 1, " differs between ranks 0-1"},
                    Case{3, 0, 1, 0, " of rank 0 differs from the others'"},
                    Case{2, 1, 1, 0, " differs between ranks 0-1"},
                    Case{3, 1, 1, 2, " of rank 2 differs from the others'"},
                    Case{3, 2, 1, 1, " of rank 1 differs from the others'"},
                    Case{4, 1, 2, 3, " of rank 3 differs from the others'"}));

// At level 3 a rank holds its shard alone, but for the copies of a hybrid run.
class ShardedReplicas : public testing::TestWithParam<Case> {};

TEST_P(ShardedReplicas, ThatDriftApartAreNamedOnEveryRank) {
  test::run_ranks({.backend = "local", .size = GetParam().ranks},
                  [&](Communicator& comm) {
                    const Case& c = GetParam();
                    Chain chain = make_cnn({.width = 4}, {.seed = 5});
                    const Faulty rule(comm.rank() == c.damaged);
                    Executor executor(chain, schedule_of(chain, c), rule, comm, {});
                    EXPECT_EQ(drift_message(executor), "");
                    auto before = executor.state(Holding::kHeld);
                    for (auto& piece : before) piece.data = piece.data.clone();
                    executor.run({.step = 0, .rate = 0, .batch = batch_of});
                    const auto after = executor.state(Holding::kHeld);
                    Tensor changed = at::full({1}, -1, at::kLong);
                    const auto parameters = chain.parameters();
                    for (size_t i = 0; i < after.size(); ++i)
                      for (size_t p = 0; p < parameters.size(); ++p)
                        if (parameters[p].name == after[i].tensor.spec.name &&
                            !after[i].data.equal(before[i].data))
                          changed[0] = static_cast<int>(p);
                    comm.broadcast(changed, c.damaged).wait();
                    ASSERT_GE(changed.item<int64_t>(), 0);
                    EXPECT_EQ(drift_message(executor),
                              text(parameters[changed.item<int64_t>()].name, c.whose));
                  });
}

INSTANTIATE_TEST_SUITE_P(Hybrid, ShardedReplicas,
                         testing::Values(Case{4, 3, 2, 1, " differs between ranks 1;3"},
                                         Case{6, 3, 3, 1,
                                              " of rank 1 differs from the others'"}));

// A difference that bfloat16 does not show yet.
TEST(ReplicasOfMasters, AreComparedWhereEveryoneUpdatesThem) {
  for (const int replicate : {1, 2})
    test::run_ranks({.backend = "local", .size = 4}, [&](Communicator& comm) {
      Chain chain = make_linear_stack({.width = 16, .depth = 1}, {});
      const Faulty rule(comm.rank() == 2, 1e-6f);
      Executor executor(
          chain,
          generate(specs_of(chain),
                   {.dp = 4, .shard = replicate - 1, .replicate = replicate},
                   {.slices = 4,
                    .clip = true,
                    .precision = {.compute = at::kBFloat16, .reduce = at::kBFloat16}}),
          rule, comm, {});
      const auto batch = [](int) { return Batch::of({{"input", at::ones({2, 16})}}); };
      EXPECT_EQ(drift_message(executor), "");
      executor.run({.step = 0, .rate = 0, .batch = batch});
      for (const auto& [name, tensor] : chain.parameters()) {
        Tensor first = tensor.detach().clone();
        comm.broadcast(first, 0).wait();
        EXPECT_TRUE(first.equal(tensor)) << name;
      }
      EXPECT_THAT(drift_message(executor),
                  HasSubstr(replicate == 1 ? "weight of rank 2 differs"
                                           : "weight differs between ranks 0;2"));
    });
}

// Nobody can tell which of a shard and its second copy is right.
TEST(MirrorsOfShards, AreComparedWithThem) {
  for (const int shard : {1, 2, 3})
    for (const Holding which : {Holding::kOwned, Holding::kHeld})
      test::run_ranks({.backend = "local", .size = 3}, [&](Communicator& comm) {
        Chain chain = make_linear_stack({.width = 16, .depth = 1}, {});
        const auto rule = make_sgd({.momentum = 0.9});
        Executor executor(
            chain,
            generate(specs_of(chain), {.dp = 3, .shard = shard},
                     {.slices = 3, .elastic = true, .optimizer_states = 1}),
            *rule, comm, {});
        executor.run({.step = 0, .rate = 0.1, .batch = [](int) {
                        return Batch::of({{"input", at::ones({2, 16})}});
                      }});
        EXPECT_EQ(drift_message(executor), "");
        auto pieces = executor.state(which);  // the last of those held is a mirror
        std::erase_if(pieces, [](const StatePiece& piece) {
          return piece.tensor.kind != TensorKind::kMoment;
        });
        if (comm.rank() == 1) pieces.back().data[0] += 1;
        EXPECT_THAT(drift_message(executor),
                    testing::MatchesRegex(
                        "optimizer\\.momentum\\..* differs between ranks (0-1|1-2)"));
      });
}

TEST(ReplicasOfBuffers, AreComparedToo) {
  test::run_ranks({.backend = "local", .size = 3}, [](Communicator& comm) {
    Chain chain = make_resnet({.depths = {1}, .width = 4, .classes = 3}, {});
    const auto rule = make_sgd({});
    Executor executor(chain, schedule_of(chain, {.ranks = 3, .shard = 3}), *rule, comm,
                      {});
    EXPECT_EQ(drift_message(executor), "");
    const NamedTensor damaged = chain.buffers()[1];
    if (comm.rank() == 2) damaged.tensor.flatten()[0] += 1;
    EXPECT_THAT(drift_message(executor),
                HasSubstr(text(damaged.name, " of rank 2 differs")));
  });
}

TEST(ReplicasOfOneRank, CannotDrift) {
  test::run_ranks({.backend = "local", .size = 1}, [](Communicator& comm) {
    Chain chain = make_cnn({.width = 4}, {.seed = 5});
    const auto rule = make_sgd({});
    Executor executor(chain, schedule_of(chain, {.ranks = 1}), *rule, comm, {});
    chain.parameters()[0].tensor.detach().flatten()[0] += 1;
    EXPECT_EQ(drift_message(executor), "");
  });
}

}  // namespace
}  // namespace cohort
