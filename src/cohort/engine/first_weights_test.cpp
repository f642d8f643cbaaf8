// SPDX-License-Identifier: Apache-2.0
// The weights a run begins with, and which rank holds what of them.
#include "cohort/engine/first_weights.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <ostream>
#include <utility>

#include "cohort/core/memory.h"
#include "cohort/engine/executor.h"
#include "cohort/nn/first_value.h"
#include "cohort/nn/models.h"
#include "cohort/step/generator.h"
#include "cohort/step/weights_hash.h"
#include "cohort/update_rule.h"
#include "support/ranks.h"

namespace cohort {
namespace {

struct FirstWay {
  Layout layout;
  bool elastic = false;
  at::ScalarType compute = at::kFloat;
};

std::ostream& operator<<(std::ostream& out, const FirstWay& way) {
  return out << way.layout.text() << (way.elastic ? " elastic " : " ") << way.compute;
}

Chain usual_model(uint64_t seed = 5) {
  return make_resnet({.depths = {1, 1}, .width = 8, .classes = 10}, {.seed = seed});
}

Chain model_filled_later(uint64_t seed = 5) {
  const ModelsFilledLater guard;
  return usual_model(seed);
}

Batch some_images(int slice) {
  return Batch::of({{"input", at::arange(2 * 3 * 32 * 32, at::kFloat)
                                  .mul(0.37)
                                  .add(slice)
                                  .sin()
                                  .view({2, 3, 32, 32})},
                    {"target", at::arange(2) + slice}});
}

struct FirstHashes {
  uint64_t first = 0;    // hash of the first weights
  uint64_t trained = 0;  // after a step
  friend bool operator==(const FirstHashes&, const FirstHashes&) = default;
};

std::ostream& operator<<(std::ostream& out, const FirstHashes& hashes) {
  return out << hashes.first << ", trained " << hashes.trained;
}

FirstHashes hashes_of(Chain chain, const FirstWay& way, Communicator& comm) {
  at::set_num_threads(1);
  const auto rule = make_update_rule({.name = "sgd"});
  Executor executor(
      chain,
      generate(specs_of(chain), way.layout,
               {.slices = 4,
                .bucket_bytes = 5'000,
                .elastic = way.elastic,
                .exact = true,
                .precision = {.compute = way.compute, .reduce = way.compute},
                .optimizer_states = static_cast<int>(rule->states().size()),
                .shares_memory = shares_memory(comm)}),
      *rule, comm, {});
  FirstHashes hashes{.first = executor.weights_hash()};
  EXPECT_EQ(executor.compare_replicas().what, "") << way;
  executor.run({.step = 0, .rate = 0.1, .batch = some_images});
  hashes.trained = executor.weights_hash();
  return hashes;
}

// What the first `ranks` of a world find, the others waiting.
std::optional<FirstHashes> found_by(
    Communicator& comm, int ranks,
    const std::function<FirstHashes(Communicator&)>& body) {
  std::optional<FirstHashes> found;
  if (const auto group = comm.split(comm.rank() < ranks ? 0 : -1)) found = body(*group);
  comm.barrier().wait();
  return found;
}

// As each rank finds them alone, with the usual model.
FirstHashes usual_hashes(Communicator& comm, at::ScalarType compute) {
  const auto alone = comm.split(comm.rank());
  return hashes_of(usual_model(), {.compute = compute}, *alone);
}

TEST(FirstWeights, AreTheSameHoweverAModelThatIsFilledLaterIsCut) {
  test::run_ranks({.backend = "local", .size = 4}, [&](Communicator& comm) {
    for (const auto compute : {at::kFloat, at::kBFloat16}) {
      const FirstHashes wanted = usual_hashes(comm, compute);
      auto state = usual_model().parameters();
      for (const auto& buffer : usual_model().buffers()) state.push_back(buffer);
      EXPECT_EQ(wanted.first, weights_hash_number(state));
      const FirstWay ways[] = {{.layout = {}},
                               {.layout = {.dp = 4}},
                               {.layout = {.dp = 3, .shard = 1}},
                               {.layout = {.dp = 4, .shard = 2}, .elastic = true},
                               {.layout = {.dp = 4, .shard = 3}},
                               {.layout = {.dp = 3, .shard = 3}, .elastic = true},
                               {.layout = {.dp = 4, .shard = 3, .replicate = 2}},
                               {.layout = {.dp = 2, .pp = 2}}};
      for (FirstWay way : ways) {
        way.compute = compute;
        const auto found = found_by(comm, way.layout.world(), [&](Communicator& group) {
          return hashes_of(model_filled_later(), way, group);
        });
        EXPECT_EQ(found.value_or(wanted), wanted) << way;
      }
    }
  });
}

// A spare that takes the place of a lost rank has a model that is filled later; those
// that were there before have values.
TEST(FirstWeights, AreThoseOfRankZeroWhereRanksDiffer) {
  test::run_ranks({.backend = "local", .size = 3}, [&](Communicator& comm) {
    const FirstHashes wanted = usual_hashes(comm, at::kFloat);
    const int rank = comm.rank();
    const auto expect_wanted = [&](Chain chain) {
      const FirstWay way{.layout = {.dp = 3, .shard = 2}};
      EXPECT_EQ(hashes_of(std::move(chain), way, comm), wanted);
    };
    expect_wanted(rank == 0 ? usual_model() : model_filled_later());
    expect_wanted(rank == 0 ? model_filled_later() : usual_model(6));
    expect_wanted(model_filled_later(5 + static_cast<uint64_t>(rank)));
  });
}

// Neither the model nor the engine ever holds more of the weights than the rank's own.
TEST(FirstWeights, NoRankHoldsWhatIsNotItsOwnToBegin) {
  constexpr int kRanks = 4;
  constexpr int64_t kWidth = 1024, kBlocks = 16;
  constexpr int64_t kBucketBytes = 4 * kWidth * (kWidth + 1);  // a block
  constexpr double kModelBytes = kBlocks * kBucketBytes;       // 67 MB
  test::run_ranks({.backend = "local", .size = kRanks}, [&](Communicator& comm) {
    for (const bool later : {true, false}) {
      MemoryCounter counter;
      const TensorMemoryScope scope(counter);
      const auto make = [] {
        return make_linear_stack({.width = kWidth, .depth = kBlocks}, {});
      };
      Chain chain = [&] {
        if (!later) return make();
        const ModelsFilledLater guard;
        return make();
      }();
      const auto rule = make_update_rule({.name = "sgd", .momentum = 0});
      const Schedule schedule =
          generate(specs_of(chain), {.dp = kRanks, .shard = 3},
                   {.slices = kRanks,
                    .bucket_bytes = kBucketBytes,
                    .optimizer_states = static_cast<int>(rule->states().size()),
                    .shares_memory = true});
      Executor executor(chain, schedule, *rule, comm, {});
      const double states = 1.0 + static_cast<double>(rule->states().size());
      const double shard = states * kModelBytes / kRanks;
      const auto peak = static_cast<double>(counter.peak());
      // The constant: room for gradients of two buckets, which take turns.
      if (later) {
        EXPECT_LT(peak, 1.1 * shard + 2.0 * kBucketBytes);
      } else {
        EXPECT_GT(peak, kModelBytes);
      }
      comm.barrier().wait();
    }
  });
}

}  // namespace
}  // namespace cohort
