// SPDX-License-Identifier: Apache-2.0
// The weights do not depend on how many ranks made them, nor on how state was sharded.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "cohort/checkpoint/safetensors.h"
#include "cohort/core/error.h"
#include "cohort/core/testing_folder.h"
#include "cohort/core/testing_long_form.h"
#include "cohort/engine/executor.h"
#include "cohort/nn/models.h"
#include "cohort/step/generator.h"
#include "cohort/step/weights_hash.h"
#include "cohort/update_rule.h"
#include "support/gathered_weights.h"
#include "support/ranks.h"

namespace cohort {
namespace {

constexpr int kSlices = 8;
constexpr int64_t kSamples = 21;  // uneven slices
constexpr int64_t kSteps = 2;     // the last with a short batch: empty slices

struct Way {
  int ranks = 1;
  int shard = 0;
  int replicate = 1;
  int stages = 1;
  const char* recompute = "none";
  bool exact = true;
  at::ScalarType dtype = at::kFloat;
  bool clip = false;
  bool vote = false;
  bool elastic = false;
  std::string backend = "local";
  const char* rule = "sgd";

  test::World world() const {
    return {.backend = backend,
            .size = ranks,
            .kind = backend == "local" ? test::Kind::kThreads : test::Kind::kProcesses};
  }
  UpdateOptions update() const { return {.name = rule, .trust = 0.1}; }
  GeneratorOptions options(const UpdateRule& rule) const {
    return {.slices = kSlices,
            .bucket_bytes = 100'000,
            .clip = clip,
            .tensor_sums = rule.reductions() > 0,
            .vote = vote,
            .elastic = elastic,
            .recompute = BlockChoice::parse(recompute, "test"),
            .exact = exact,
            .precision = {.compute = dtype, .reduce = dtype},
            .optimizer_states = static_cast<int>(rule.states().size()),
            .shares_memory = backend != "gloo"};
  }
};

std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << way.backend << " n=" << way.ranks << " shard=" << way.shard
             << " replicate=" << way.replicate << " pp=" << way.stages
             << " recompute=" << way.recompute << " exact=" << way.exact << ' '
             << way.dtype << " clip=" << way.clip << " vote=" << way.vote
             << " elastic=" << way.elastic << ' ' << way.rule;
}

using MakeChain = Chain (*)();

Chain cnn() { return make_cnn({.width = 4}, {.seed = 5}); }
Chain resnet() {
  return make_resnet({.depths = {1, 1}, .width = 4, .classes = 10}, {.seed = 5});
}

Batch slice_of(MakeChain make, int slice, int64_t count) {
  const bool gray = make == &cnn;
  const int64_t base = count / kSlices, extra = count % kSlices;
  const int64_t begin = slice * base + std::min<int64_t>(slice, extra);
  const int64_t end = begin + base + (slice < extra ? 1 : 0);
  const std::vector<int64_t> shape =
      gray ? std::vector<int64_t>{1, 28, 28} : std::vector<int64_t>{3, 16, 16};
  std::vector<int64_t> ids;
  std::vector<Tensor> images;
  for (int64_t i = begin; i < end; ++i) {
    images.push_back(at::arange(shape[0] * shape[1] * shape[2], at::kFloat)
                         .mul(0.37)
                         .add(7.0 * i)
                         .sin()
                         .reshape(shape));
    ids.push_back(i);
  }
  return Batch::of(
      {{"input", images.empty() ? at::empty({0, shape[0], shape[1], shape[2]})
                                : at::stack(images)},
       {"target", at::arange(begin, end).remainder(10)}},
      ids);
}

// Trains on this rank; rank 0 returns all weights.
std::vector<NamedTensor> train(MakeChain make, const Way& way, Communicator& comm) {
  Chain chain = make();
  const auto rule = make_update_rule(way.update());
  const Layout layout{.dp = way.ranks / way.stages,
                      .pp = way.stages,
                      .shard = way.shard,
                      .replicate = way.replicate};
  Executor executor(chain, generate(specs_of(chain), layout, way.options(*rule)), *rule,
                    comm,
                    {.decay = {.weight_decay = 0.01}, .clip = way.clip ? 0.5 : 0.0});
  for (int64_t step = 0; step < kSteps; ++step)
    executor.run({.step = step, .rate = 0.05, .batch = [&](int slice) {
                    return slice_of(make, slice, step + 1 == kSteps ? 5 : kSamples);
                  }});
  auto weights = test::gathered_weights(executor, comm);
  // Added up by all ranks, each over what it owns.
  const uint64_t hash = executor.weights_hash();
  if (comm.rank() == 0) {
    EXPECT_EQ(hash, weights_hash_number(weights));
  }
  return weights;
}

std::string hash_of(MakeChain make, const Way& way) {
  // Ranks are children of the test: the hash comes back through a file.
  const test::TempFolder folder;
  const std::string path = folder / "hash";
  test::run_ranks(way.world(), [&](Communicator& comm) {
    at::set_num_threads(1);
    const auto weights = train(make, way, comm);
    if (comm.rank() == 0) std::ofstream(path) << weights_hash(weights);
  });
  std::string hash;
  std::ifstream(path) >> hash;
  return hash;
}

class Exactness : public testing::TestWithParam<MakeChain> {};

// Both models have four blocks.
constexpr const char* kRecompute[] = {"none", "all", "every=2", "blocks=1-2"};

// Whether a way that may be left out is, in the short form: every second is.
bool takes_turns(bool may, int number) {
  return may && number % 2 != 0 && !test::is_long();
}

// In the short form half of the ways in bfloat16: every two of ranks, level and type
// meet.
TEST_P(Exactness, WeightsDoNotDependOnRanksOrShardLevel) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const std::string wanted = hash_of(GetParam(), {.dtype = dtype});
    ASSERT_EQ(wanted.size(), 16u);
    for (const int ranks : {1, 2, 3, 4, 8})
      for (const int shard : {0, 1, 2, 3}) {
        if (takes_turns(dtype == at::kBFloat16, ranks % 3 + shard)) continue;
        const Way way{.ranks = ranks,
                      .shard = shard,
                      .recompute = kRecompute[(ranks + shard) % 4],
                      .dtype = dtype};
        EXPECT_EQ(hash_of(GetParam(), way), wanted) << way;
      }
  }
}

TEST_P(Exactness, RecomputeOfAnyBlocksChangesNothing) {
  const std::string wanted = hash_of(GetParam(), {});
  for (const char* recompute : {"all", "every=2", "every=3", "blocks=0", "blocks=1-2",
                                "blocks=3", "blocks=0-1,3"})
    for (const int shard : {0, 3}) {
      const Way way{.ranks = 3, .shard = shard, .recompute = recompute};
      EXPECT_EQ(hash_of(GetParam(), way), wanted) << way;
    }
}

TEST_P(Exactness, ClippingVotesAndReplicasChangeNothing) {
  const std::string wanted = hash_of(GetParam(), {.clip = true});
  EXPECT_NE(wanted, hash_of(GetParam(), {}));
  for (const int shard : {0, 1, 2, 3}) {
    const Way way{.ranks = 3, .shard = shard, .clip = true, .vote = true};
    EXPECT_EQ(hash_of(GetParam(), way), wanted) << way;
  }
  for (const int shard : {1, 2, 3}) {
    const Way way{.ranks = 4, .shard = shard, .replicate = 2, .clip = true};
    EXPECT_EQ(hash_of(GetParam(), way), wanted) << way;
  }
}

TEST_P(Exactness, ElasticStepsChangeNothing) {
  const std::string wanted = hash_of(GetParam(), {});
  for (const char* backend : {"local", "shm", "gloo"})
    for (const int shard : {0, 1, 2, 3}) {
      const Way way{.ranks = 3, .shard = shard, .elastic = true, .backend = backend};
      EXPECT_EQ(hash_of(GetParam(), way), wanted) << way;
    }
  const Way copies{.ranks = 4, .shard = 2, .replicate = 2, .elastic = true};
  EXPECT_EQ(hash_of(GetParam(), copies), wanted) << copies;
}

TEST_P(Exactness, EveryBackendGivesTheSameBits) {
  const std::string wanted = hash_of(GetParam(), {});
  for (const char* backend : {"shm", "gloo"})
    for (const int shard : {0, 1, 2, 3}) {
      const Way way{.ranks = 3, .shard = shard, .backend = backend};
      EXPECT_EQ(hash_of(GetParam(), way), wanted) << way;
    }
}

// In the short form half of the ways over other backends: every two of backend, layout
// and kind of step meet.
TEST_P(Exactness, StagesOfAPipelineChangeNothing) {
  const std::string wanted = hash_of(GetParam(), {});
  for (const char* backend : {"local", "shm", "gloo"})
    for (const bool elastic : {false, true}) {
      for (const int stages : {2, 4}) {
        const Way way{.ranks = stages,
                      .stages = stages,
                      .recompute = kRecompute[stages / 2 + elastic],
                      .elastic = elastic,
                      .backend = backend};
        EXPECT_EQ(hash_of(GetParam(), way), wanted) << way;
      }
      for (const int shard : {0, 1, 2, 3}) {
        const std::string over = backend;
        if (takes_turns(over != "local", shard + elastic + (over == "shm"))) continue;
        const Way way{.ranks = 4,
                      .shard = shard,
                      .stages = 2,
                      .recompute = kRecompute[shard],
                      .elastic = elastic,
                      .backend = backend};
        EXPECT_EQ(hash_of(GetParam(), way), wanted) << way;
      }
    }
}

TEST_P(Exactness, StagesOfOtherStepsChangeNothing) {
  const std::string clipped = hash_of(GetParam(), {.clip = true});
  for (const int shard : {0, 2, 3}) {
    const Way way{.ranks = 6, .shard = shard, .stages = 2, .clip = true, .vote = true};
    EXPECT_EQ(hash_of(GetParam(), way), clipped) << way;
  }
  const Way hybrid{.ranks = 8, .shard = 3, .replicate = 2, .stages = 2, .clip = true};
  EXPECT_EQ(hash_of(GetParam(), hybrid), clipped) << hybrid;
  const std::string narrow = hash_of(GetParam(), {.dtype = at::kBFloat16});
  for (const bool elastic : {false, true}) {
    const Way way{.ranks = 3, .stages = 3, .dtype = at::kBFloat16, .elastic = elastic};
    EXPECT_EQ(hash_of(GetParam(), way), narrow) << way;
  }
}

// Norms of whole tensors, of which a rank has a part. In the short form half of all
// ways: every three of rule, kind of step, ranks and shard level meet.
TEST_P(Exactness, RatesOfTensorsDoNotDependOnRanksShardLevelOrStages) {
  for (const char* rule : {"lars", "lamb"}) {
    const bool first = rule == std::string("lars");
    const std::string wanted = hash_of(GetParam(), {.rule = rule});
    EXPECT_NE(wanted, hash_of(GetParam(), {}));
    for (const bool elastic : {false, true}) {
      for (const int ranks : {1, 2, 3})
        for (const int shard : {0, 1, 2, 3}) {
          if (takes_turns(true, first + elastic + ranks + shard)) continue;
          const Way way{.ranks = ranks,
                        .shard = shard,
                        .elastic = elastic,
                        .backend = ranks == 3 ? "shm" : "local",
                        .rule = rule};
          EXPECT_EQ(hash_of(GetParam(), way), wanted) << way;
        }
      for (const int shard : {0, 1, 2, 3}) {
        if (takes_turns(true, first + elastic + shard)) continue;
        const Way way{.ranks = shard == 0 ? 2 : 4,
                      .shard = shard,
                      .stages = 2,
                      .elastic = elastic,
                      .backend = shard == 0 ? "gloo" : "local",
                      .rule = rule};
        EXPECT_EQ(hash_of(GetParam(), way), wanted) << way;
      }
    }
  }
}

TEST_P(Exactness, RatesOfTensorsDoNotDependOnReplicasWithOtherSteps) {
  for (const char* rule : {"lars", "lamb"})
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const std::string wanted =
          hash_of(GetParam(), {.dtype = dtype, .clip = true, .rule = rule});
      for (const int stages : {1, 2}) {
        const Way way{.ranks = 4 * stages,
                      .shard = 1 + stages,
                      .replicate = 2,
                      .stages = stages,
                      .dtype = dtype,
                      .clip = true,
                      .vote = true,
                      .rule = rule};
        EXPECT_EQ(hash_of(GetParam(), way), wanted) << way;
      }
      const Way whole{
          .ranks = 6, .stages = 2, .dtype = dtype, .clip = true, .rule = rule};
      EXPECT_EQ(hash_of(GetParam(), whole), wanted) << whole;
    }
}

INSTANTIATE_TEST_SUITE_P(Models, Exactness, testing::Values(&cnn, &resnet),
                         [](const auto& info) {
                           return info.index == 0 ? std::string("cnn") : "resnet";
                         });

// Without --exact: equal to rounding, at every level, on every backend.
TEST(ShardLevels, TrainAsOneRankDoes) {
  const test::TempFolder folder;
  const std::string path = folder / "one_rank.safetensors";
  const Way one{.exact = false};
  test::run_ranks(one.world(), [&](Communicator& comm) {
    at::set_num_threads(1);
    write_safetensors(path, train(&cnn, one, comm));
  });
  for (const char* backend : {"local", "gloo"})
    for (const int ranks : {2, 3, 4})
      for (const int shard : {0, 1, 2, 3}) {
        Way way{.ranks = ranks, .shard = shard, .exact = false, .backend = backend};
        if (ranks == 4 && shard > 0) way.replicate = 2;
        SCOPED_TRACE(testing::Message() << way);
        test::run_ranks(way.world(), [&](Communicator& comm) {
          at::set_num_threads(1);
          const auto ours = train(&cnn, way, comm);
          if (comm.rank() != 0) return;
          const auto alone = read_safetensors(path).tensors;
          ASSERT_EQ(alone.size(), ours.size());
          for (const auto& [name, tensor] : ours)
            for (const auto& [other, wanted] : alone)
              if (name == other) {
                EXPECT_LT((tensor - wanted).abs().max().item<float>(), 1e-5) << name;
              }
        });
      }
}

}  // namespace
}  // namespace cohort
