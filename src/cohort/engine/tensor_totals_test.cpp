// SPDX-License-Identifier: Apache-2.0
// Rules that give each tensor a rate of its own, run by the engine.
#include "cohort/engine/tensor_totals.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <map>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/engine/executor.h"
#include "cohort/engine/testing_elastic.h"
#include "cohort/nn/models.h"
#include "cohort/step/checker.h"
#include "cohort/step/generator.h"
#include "support/gathered_weights.h"
#include "support/ranks.h"

namespace cohort {
namespace {

constexpr int kTotalSlices = 3;
constexpr int64_t kTotalSteps = 4;
constexpr double kDecay = 0.01;
constexpr double kTrust = 0.1;
constexpr const char* kLeftAlone = "3.";  // names in the second layer begin so

struct RuleCase {
  const char* name = "lars";
  double rate = 0.5;
  bool nesterov = false;
  double clip = 0;

  UpdateOptions update() const {
    return {.name = name, .nesterov = nesterov, .eps = 1e-6, .trust = kTrust};
  }
};

std::ostream& operator<<(std::ostream& out, const RuleCase& c) {
  return out << c.name << (c.nesterov ? "_nesterov" : "")
             << (c.clip > 0 ? "_clip" : "");
}

struct TotalWay {
  int ranks = 1;
  int shard = 0;
  int stages = 1;
  bool elastic = false;
};

std::ostream& operator<<(std::ostream& out, const TotalWay& way) {
  return out << "n=" << way.ranks << " shard=" << way.shard << " pp=" << way.stages
             << " elastic=" << way.elastic;
}

Chain make_layers() {
  return make_mlp({.inputs = 100, .width = 70, .depth = 2, .dropout = 0}, {.seed = 5});
}

Batch rows_of(int64_t step, int slice) {
  return Batch::of({{"input", at::arange(4 * 100, at::kFloat)
                                  .mul(0.37)
                                  .add(static_cast<double>(13 * step + 5 * slice))
                                  .sin()
                                  .reshape({4, 100})},
                    {"target", at::arange(4).add(step + slice).remainder(10)}});
}

struct TotalRank {
  TotalRank(const RuleCase& c, const TotalWay& way, Communicator& comm)
      : chain(make_layers()),
        rule(make_update_rule(c.update())),
        executor(chain, schedule(chain, *rule, c, way), *rule, comm,
                 {.decay = {.weight_decay = kDecay, .no_decay = kLeftAlone},
                  .clip = c.clip}) {}

  static Schedule schedule(const Chain& chain, const UpdateRule& rule,
                           const RuleCase& c, const TotalWay& way) {
    const Layout layout{
        .dp = way.ranks / way.stages, .pp = way.stages, .shard = way.shard};
    Schedule schedule =
        generate(specs_of(chain), layout,
                 {.slices = kTotalSlices,
                  .bucket_bytes = 20'000,
                  .clip = c.clip > 0,
                  .tensor_sums = true,
                  .elastic = way.elastic,
                  .exact = way.elastic,
                  .optimizer_states = static_cast<int>(rule.states().size()),
                  .shares_memory = true});
    check(schedule, {.elastic = way.elastic});
    return schedule;
  }

  void train() {
    for (int64_t step = 0; step < kTotalSteps; ++step)
      executor.run({.step = step, .rate = rate, .batch = [&](int slice) {
                      return rows_of(step, slice);
                    }});
  }

  Chain chain;
  std::unique_ptr<UpdateRule> rule;
  Executor executor;
  double rate = 0;
};

// The same steps with whole tensors of float64, one formula after another.
class Plain {
 public:
  explicit Plain(const RuleCase& c) : case_(c) {
    for (const auto& [name, tensor] : make_layers().parameters())
      tensors_.push_back({.name = name,
                          .p = tensor.detach().to(at::kDouble),
                          .m = at::zeros(tensor.sizes(), at::kDouble),
                          .v = at::zeros(tensor.sizes(), at::kDouble)});
  }

  void step(int64_t step) {
    auto gradients = gradients_of(step);
    double squares = 0;
    for (const auto& g : gradients) squares += g.square().sum().item<double>();
    if (case_.clip > 0)
      for (auto& g : gradients)
        g = g * std::min(1.0, case_.clip / (std::sqrt(squares) + 1e-6));
    for (size_t i = 0; i < tensors_.size(); ++i)
      case_.name == std::string("lars") ? lars(tensors_[i], gradients[i])
                                        : lamb(tensors_[i], gradients[i], step + 1);
  }

  const Tensor& weight(const std::string& name) const {
    for (const auto& one : tensors_)
      if (one.name == name) return one.p;
    throw BugError("no " + name);
  }

 private:
  struct One {
    std::string name;
    Tensor p, m, v;
    bool left_alone() const { return name.find(kLeftAlone) == 0; }
    bool adapts() const { return p.dim() > 1 && !left_alone(); }
    double decay() const { return left_alone() ? 0 : kDecay; }
  };

  static double norm(const Tensor& x) { return x.norm().item<double>(); }

  std::vector<Tensor> gradients_of(int64_t step) const {
    std::vector<Tensor> leaves, inputs, targets;
    for (const auto& one : tensors_)
      leaves.push_back(one.p.detach().requires_grad_(true));
    for (int slice = 0; slice < kTotalSlices; ++slice) {
      inputs.push_back(rows_of(step, slice).at("input").to(at::kDouble));
      targets.push_back(rows_of(step, slice).at("target"));
    }
    Tensor x = at::cat(inputs);
    for (size_t i = 0; i < leaves.size(); i += 2) {
      if (i > 0) x = x.relu();
      x = at::linear(x, leaves[i], leaves[i + 1]);
    }
    return torch::autograd::grad({at::cross_entropy_loss(x, at::cat(targets))}, leaves);
  }

  void lars(One& one, const Tensor& g) const {
    double local = case_.rate;
    if (one.adapts())
      local *= kTrust * norm(one.p) / (norm(g) + one.decay() * norm(one.p) + 1e-6);
    const Tensor d = local * (g + one.decay() * one.p);
    one.v = 0.9 * one.v + d;
    one.p = one.p - (case_.nesterov ? 0.9 * one.v + d : one.v);
  }

  void lamb(One& one, const Tensor& g, int64_t t) const {
    one.m = 0.9 * one.m + 0.1 * g;
    one.v = 0.999 * one.v + 0.001 * g * g;
    const Tensor m = one.m / (1 - std::pow(0.9, t));
    const Tensor v = one.v / (1 - std::pow(0.999, t));
    const Tensor u = m / (v.sqrt() + 1e-6) + one.decay() * one.p;
    const double trust = one.adapts() ? norm(one.p) / norm(u) : 1;
    one.p = one.p - case_.rate * trust * u;
  }

  RuleCase case_;
  std::vector<One> tensors_;
};

class TensorTotalsTest : public testing::TestWithParam<RuleCase> {};

TEST_P(TensorTotalsTest, TheEngineUpdatesAsTheFormulasSay) {
  for (const TotalWay& way :
       {TotalWay{1}, TotalWay{2, 0}, TotalWay{3, 1}, TotalWay{2, 2}, TotalWay{3, 3},
        TotalWay{2, 0, 2}, TotalWay{3, 2, 1, true}})
    test::run_ranks({.backend = "local", .size = way.ranks}, [&](Communicator& comm) {
      TotalRank rank(GetParam(), way, comm);
      rank.rate = GetParam().rate;
      rank.train();
      Plain plain(GetParam());
      for (int64_t step = 0; step < kTotalSteps; ++step) plain.step(step);
      for (const auto& [name, tensor] : test::gathered_weights(rank.executor, comm)) {
        const Tensor& wanted = plain.weight(name);
        EXPECT_LT((tensor.to(at::kDouble) - wanted).abs().max().item<double>(), 1e-5)
            << way << ' ' << name;
      }
    });
}

// Along a pipeline the second copy lies with another stage, which has no part of the
// tensor that it could sum over.
TEST_P(TensorTotalsTest, SecondCopiesAreUpdatedToTheSameBits) {
  test::run_in_child([&] {
    for (const TotalWay& way :
         {TotalWay{2, 0, 2, true}, TotalWay{3, 0, 3, true}, TotalWay{3, 1, 1, true},
          TotalWay{3, 3, 1, true}, TotalWay{4, 2, 2, true}}) {
      SCOPED_TRACE(testing::Message() << way);
      test::Shared owned(way.ranks), held(way.ranks);
      test::run_local_ranks(way.ranks, 0, [&](Communicator& comm) {
        TotalRank rank(GetParam(), way, comm);
        rank.rate = GetParam().rate;
        rank.train();
        owned[comm.rank()] = test::elements(rank.executor, Holding::kOwned);
        held[comm.rank()] = test::elements(rank.executor, Holding::kHeld);
      });
      const test::Elements all = test::joined(owned);
      std::map<std::pair<std::string, int64_t>, int> holders;
      for (const auto& part : held)
        for (const auto& [where, value] : part) {
          ++holders[where];
          ASSERT_EQ(value, all.at(where)) << where.first << ' ' << where.second;
        }
      for (const auto& [where, count] : holders) ASSERT_GE(count, 2) << where.first;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Rules, TensorTotalsTest,
                         testing::Values(RuleCase{"lars"}, RuleCase{"lars", 0.5, true},
                                         RuleCase{"lars", 0.5, false, 0.05},
                                         RuleCase{"lamb", 0.02},
                                         RuleCase{"lamb", 0.02, false, 0.05}),
                         testing::PrintToStringParamName());

TEST(TensorTotals, AStepThatMakesNoneIsRefused) {
  test::run_ranks({.backend = "local", .size = 2}, [](Communicator& comm) {
    Chain chain = make_layers();
    const auto rule = make_update_rule({.name = "lars"});
    EXPECT_THAT(test::message_of<ConfigError>([&] {
                  Executor(chain, generate(specs_of(chain), {.dp = 2}, {.slices = 2}),
                           *rule, comm, {});
                }),
                testing::HasSubstr("optimizer 'lars' needs sums over tensors"));
  });
}

}  // namespace
}  // namespace cohort
