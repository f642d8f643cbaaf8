// SPDX-License-Identifier: Apache-2.0
// The state of a run leaves its layout as pieces and goes on in any other.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <mutex>

#include "cohort/core/hash.h"
#include "cohort/engine/executor.h"
#include "cohort/nn/models.h"
#include "cohort/step/generator.h"
#include "support/ranks.h"

namespace cohort {
namespace {

constexpr int kRanks = 4;
constexpr int kStateSlices = 4;
constexpr int64_t kBefore = 3;  // steps before the state moves
constexpr int64_t kAfter = 2;

struct StateWay {
  int ranks = 1;
  int shard = 0;
  int replicate = 1;
  bool elastic = false;  // off: ranks that share memory update for one another

  Layout layout() const {
    return {.dp = ranks, .shard = shard, .replicate = replicate};
  }
};

std::ostream& operator<<(std::ostream& out, const StateWay& way) {
  return out << way.layout().text() << " elastic=" << way.elastic;
}

const StateWay kWays[] = {
    {.ranks = 1},
    {.ranks = 2},
    {.ranks = 4, .shard = 3},
    {.ranks = 1, .elastic = true},
    {.ranks = 3, .shard = 1},
    {.ranks = 4, .shard = 3, .replicate = 2},
    {.ranks = 2, .shard = 2, .elastic = true},
    {.ranks = 3, .shard = 3, .elastic = true},
    {.ranks = 4, .shard = 1, .replicate = 2, .elastic = true},
    {.ranks = 4, .elastic = true},
    {.ranks = 4, .shard = 2, .replicate = 2},
    {.ranks = 3},
};

struct Kind {
  const char* optimizer;
  at::ScalarType dtype;
  bool statistics;  // a model with batch norm
};

std::ostream& operator<<(std::ostream& out, const Kind& kind) {
  return out << kind.optimizer << ' ' << kind.dtype << " norm=" << kind.statistics;
}

Chain make_chain(const Kind& kind, uint64_t seed) {
  if (kind.statistics)
    return make_resnet({.depths = {1}, .width = 4, .classes = 10}, {.seed = seed});
  return make_cnn({.width = 4}, {.seed = seed});
}

// A rank of a run: what it trains, and how.
struct Side {
  Side(const Kind& kind, const StateWay& way, Communicator& comm, uint64_t seed)
      : gray(!kind.statistics),
        chain(make_chain(kind, seed)),
        rule(make_update_rule({.name = kind.optimizer})),
        executor(chain,
                 generate(specs_of(chain), way.layout(),
                          {.slices = kStateSlices,
                           .bucket_bytes = 20'000,
                           .tensor_sums = rule->reductions() > 0,
                           .vote = kind.dtype == at::kHalf,
                           .elastic = way.elastic,
                           .exact = true,
                           .precision = {.compute = kind.dtype, .reduce = kind.dtype},
                           .optimizer_states = static_cast<int>(rule->states().size()),
                           .shares_memory = shares_memory(comm)}),
                 *rule, comm,
                 {.decay = {.weight_decay = 0.01},
                  .loss_scale = {.initial = 1024, .growth_steps = 2}}) {}

  void train(int64_t first, int64_t steps) {
    for (int64_t step = first; step < first + steps; ++step)
      executor.run({.step = step, .rate = 0.01, .batch = [&](int slice) {
                      return batch_of(step, slice);
                    }});
  }

  Batch batch_of(int64_t step, int slice) const {
    const Tensor shape = gray ? at::empty({2, 1, 28, 28}) : at::empty({2, 3, 32, 32});
    return Batch::of({{"input", at::arange(shape.numel(), at::kFloat)
                                    .mul(0.37)
                                    .add(static_cast<double>(7 * step + slice))
                                    .sin()
                                    .reshape(shape.sizes())},
                      {"target", at::arange(2) + slice}});
  }

  bool gray;
  Chain chain;
  std::unique_ptr<UpdateRule> rule;
  Executor executor;
};

// The whole state, put together from what each rank owns.
class Store {
 public:
  void take(const std::vector<StatePiece>& pieces, const std::string& small) {
    const std::lock_guard lock(mutex_);
    const c10::NoGradGuard no_grad;
    for (const auto& [tensor, data] : pieces) {
      Whole& whole = tensors_[tensor.spec.name];
      if (!whole.data.defined()) {
        whole.data = at::zeros({tensor.spec.numel()}, data.scalar_type());
        whole.times = at::zeros({tensor.spec.numel()}, at::kInt);
      }
      const int64_t count = tensor.spec.end - tensor.spec.begin;
      whole.data.narrow(0, tensor.spec.begin, count).copy_(data.view({-1}));
      whole.times.narrow(0, tensor.spec.begin, count).add_(1);
    }
    small_ = small;
  }
  void expect_each_element_once() const {
    for (const auto& [name, whole] : tensors_)
      EXPECT_TRUE(whole.times.eq(1).all().item<bool>()) << name;
  }
  void fill(const std::vector<StatePiece>& pieces) const {
    const c10::NoGradGuard no_grad;
    for (const auto& [tensor, data] : pieces) {
      const auto found = tensors_.find(tensor.spec.name);
      ASSERT_NE(found, tensors_.end()) << tensor.spec.name;
      Tensor out = data.view({-1});
      out.copy_(found->second.data.narrow(0, tensor.spec.begin, out.numel()));
    }
  }
  const std::string& small() const { return small_; }

 private:
  struct Whole {
    Tensor data, times;
  };
  std::mutex mutex_;
  std::map<std::string, Whole> tensors_;
  std::string small_;
};

class StateTest : public testing::TestWithParam<Kind> {};

TEST_P(StateTest, GoesOnInAnotherLayoutToTheBit) {
  std::vector<Store> stores(std::size(kWays));
  const test::World world{.backend = "local", .size = kRanks};
  test::run_ranks(world, [&](Communicator& comm) {
    at::set_num_threads(1);
    const auto within = [&](const StateWay& way, const auto& body) {
      const auto group = comm.split(comm.rank() < way.ranks ? 0 : -1);
      if (group) body(*group);
      comm.barrier().wait();
    };
    uint64_t wanted = 0;
    within({.ranks = 1}, [&](Communicator& group) {
      Side side(GetParam(), {}, group, 5);
      side.train(0, kBefore + kAfter);
      wanted = side.executor.weights_hash();
    });
    for (size_t i = 0; i < std::size(kWays); ++i) {
      const StateWay& from = kWays[i];
      const StateWay& to = kWays[(i + 1) % std::size(kWays)];
      within(from, [&](Communicator& group) {
        Side side(GetParam(), from, group, 5);
        side.train(0, kBefore);
        stores[i].take(side.executor.state(Holding::kOwned),
                       side.executor.small_state());
      });
      if (comm.rank() == 0) stores[i].expect_each_element_once();
      within(to, [&](Communicator& group) {
        Side side(GetParam(), to, group, 6);
        stores[i].fill(side.executor.state(Holding::kHeld));
        side.executor.set_small_state(stores[i].small());
        side.executor.refresh();
        side.train(kBefore, kAfter);
        const uint64_t hash = side.executor.weights_hash();
        if (group.rank() == 0) {
          EXPECT_EQ(hash, wanted) << from << " -> " << to;
        }
      });
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, StateTest,
    testing::Values(Kind{"sgd", at::kFloat, true}, Kind{"adamw", at::kFloat, false},
                    Kind{"adamw", at::kBFloat16, true},
                    Kind{"sgd", at::kBFloat16, false}, Kind{"sgd", at::kHalf, false},
                    Kind{"adamw", at::kHalf, true}, Kind{"lars", at::kFloat, true},
                    Kind{"lamb", at::kHalf, false}));

}  // namespace
}  // namespace cohort
