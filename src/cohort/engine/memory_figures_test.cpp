// SPDX-License-Identifier: Apache-2.0
// What a rank really holds at each shard level, against the formulas of ZeRO and what
// the checker predicts. COHORT_LONG=1: 100 million parameters.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "cohort/core/memory.h"
#include "cohort/core/testing_long_form.h"
#include "cohort/engine/block_measure.h"
#include "cohort/engine/executor.h"
#include "cohort/engine/gradient_sums.h"
#include "cohort/nn/models.h"
#include "cohort/step/checker.h"
#include "cohort/step/generator.h"
#include "cohort/update_rule.h"
#include "support/ranks.h"

namespace cohort {
namespace {

constexpr int kRanks = 4;
constexpr int64_t kBlocks = 48;
constexpr int64_t kMeasuredSamples = 4;  // per slice

int64_t width() { return test::is_long() ? 1440 : 320; }

Batch wide_samples(int64_t count) {
  return Batch::of({{"input", at::ones({count, width()})}});
}

// Bytes per parameter with mixed precision and AdamW: 2 weights, 2 gradients, 4 master,
// 8 optimizer state, each whole or cut.
double bytes_a_parameter(int shard, bool elastic) {
  const double n = kRanks;
  // The second copy has master, optimizer state, and the gradient it is updated with.
  if (elastic) return bytes_a_parameter(shard, false) + (shard > 0 ? 14 / n : 0);
  return std::vector<double>{16, 4 + 12 / n, 2 + 14 / n, 16 / n}[shard];
}

// The most memory that two steps take on this rank.
double peak_of_steps(Chain& chain, const Schedule& schedule, const UpdateRule& rule,
                     Communicator& comm, const std::function<Batch(int slice)>& batch) {
  MemoryCounter counter;
  const TensorMemoryScope scope(counter);
  Executor executor(chain, schedule, rule, comm, {});
  counter.reset_peak();
  for (int64_t step = 0; step < 2; ++step)
    executor.run({.step = step, .rate = 1e-3, .batch = batch});
  return static_cast<double>(counter.peak());
}

struct Figures {
  double measured = 0, predicted = 0, formula = 0;
  double unkept = 0;  // in the formula: sums of shards that are used as they are made
};

Figures figures_of(int shard, bool elastic, Communicator& comm) {
  Chain chain = make_linear_stack({.width = width(), .depth = kBlocks}, {});
  const auto rule = make_update_rule({.name = "adamw"});
  auto specs = specs_of(chain);
  const auto measures = measure_blocks(chain, wide_samples, kMeasuredSamples);
  set_bytes(measures, kMeasuredSamples, at::kBFloat16, specs);
  const Schedule schedule =
      generate(specs, {.dp = kRanks, .shard = shard},
               {.slices = kRanks,
                .bucket_bytes = 4 * width() * (width() + 1) * 2,
                .elastic = elastic,
                .precision = {.compute = at::kBFloat16, .reduce = at::kBFloat16},
                .optimizer_states = static_cast<int>(rule->states().size()),
                .shares_memory = true});
  Figures figures;
  figures.predicted = static_cast<double>(check(schedule).largest().parts.total());
  const double parameters = static_cast<double>(kBlocks * width() * (width() + 1));
  double activations = 0;
  for (const auto& spec : specs)
    activations += static_cast<double>(spec.activation_bytes);
  figures.formula = bytes_a_parameter(shard, elastic) * parameters +
                    2.0 * 2.0 * parameters / kBlocks + activations;

  if (shard >= 2 && !elastic) figures.unkept = 2 * parameters / kRanks;

  figures.measured = peak_of_steps(chain, schedule, *rule, comm,
                                   [](int) { return wide_samples(kMeasuredSamples); });
  return figures;
}

class MemoryFigures : public testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(MemoryFigures, AreThoseOfTheFormulaAndOfTheChecker) {
  const auto [shard, elastic] = GetParam();
  test::run_ranks({.backend = "local", .size = kRanks}, [&](Communicator& comm) {
    const Figures figures = figures_of(shard, elastic, comm);
    if (comm.rank() == 0)
      std::fprintf(
          stderr,
          "shard %d: measured %.1f MB, formula %.1f MB (%+.1f %%), checker %.1f "
          "MB (%+.1f %%)\n",
          shard, figures.measured / 1e6, figures.formula / 1e6,
          100 * (figures.measured / figures.formula - 1), figures.predicted / 1e6,
          100 * (figures.predicted / figures.measured - 1));
    EXPECT_NEAR(figures.predicted / figures.measured, 1, 0.03);
    EXPECT_LT(figures.measured / figures.formula, 1.10);
    EXPECT_GT(figures.measured / (figures.formula - figures.unkept), 0.90);
  });
}

INSTANTIATE_TEST_SUITE_P(ShardLevels, MemoryFigures,
                         testing::Combine(testing::Values(0, 1, 2, 3),
                                          testing::Bool()));

// Samples of one class.
Batch labelled(at::IntArrayRef shape) {
  Batch batch = Batch::of(
      {{"input", at::ones(shape)}, {"target", at::zeros({shape[0]}, at::kLong)}});
  for (int64_t i = 0; i < shape[0]; ++i) batch.ids.push_back(i);
  return batch;
}

// An MLP keeps much between forward and backward: masks and inputs of its layers.
double activations_of(const char* recompute, Communicator& comm) {
  constexpr int64_t kMany = 256;
  const auto images = [](int64_t count) { return labelled({count, 512}); };
  Chain chain = make_mlp({.inputs = 512, .width = 512, .depth = 12}, {});
  const auto rule = make_update_rule({.name = "sgd"});
  auto specs = specs_of(chain);
  set_bytes(measure_blocks(chain, images, kMany), kMany, at::kFloat, specs);
  const Schedule schedule =
      generate(specs, {.dp = 1}, {.recompute = BlockChoice::parse(recompute, "test")});
  const MemoryParts predicted = check(schedule).largest().parts;
  const double measured =
      peak_of_steps(chain, schedule, *rule, comm, [&](int) { return images(kMany); });
  std::fprintf(stderr, "recompute %s: measured %.1f MB, checker %.1f MB\n", recompute,
               measured / 1e6, static_cast<double>(predicted.total()) / 1e6);
  EXPECT_NEAR(static_cast<double>(predicted.total()) / measured, 1, 0.03) << recompute;
  return static_cast<double>(predicted.activations);
}

TEST(RecomputeMemory, IsWhatTheCheckerSays) {
  test::run_ranks({.backend = "local", .size = 1}, [](Communicator& comm) {
    const double none = activations_of("none", comm);
    const double half = activations_of("every=2", comm);
    const double all = activations_of("all", comm);
    EXPECT_LT(half, 0.85 * none);
    EXPECT_LT(all, 0.85 * half);
  });
}

// Each place of a pipeline has as many slices under way as its order says.
void compare_places(const char* order, Communicator& comm) {
  constexpr int64_t kSlice = 64;
  constexpr int kSlices = 8;
  const auto rows = [](int64_t count) { return labelled({count, 256}); };
  Chain chain = make_mlp({.inputs = 256, .width = 256, .depth = 8}, {});
  const auto rule = make_update_rule({.name = "sgd"});
  auto specs = specs_of(chain);
  set_bytes(measure_blocks(chain, rows, kSlice), kSlice, at::kFloat, specs);
  const Schedule schedule =
      generate(specs, {.pp = comm.size()},
               {.slices = kSlices,
                .pipeline = parse_pipeline({.schedule = order}),
                .optimizer_states = static_cast<int>(rule->states().size())});
  const CheckReport report = check(schedule);
  const Role& role = schedule.role_of(comm.rank());
  const MemoryParts parts = report.roles[&role - schedule.roles.data()].parts;
  const auto fields = fields_of(chain, role);
  const auto needed = [&](int) {
    Batch batch = rows(kSlice);
    std::erase_if(batch.fields, [&](const auto& field) {
      return std::ranges::find(fields, field.first) == fields.end();
    });
    return batch;
  };
  const double measured = peak_of_steps(chain, schedule, *rule, comm, needed);
  const auto planned = static_cast<double>(parts.total());
  std::fprintf(stderr,
               "%s, place %d: measured %.2f MB, checker %.2f MB, %.2f of it "
               "activations\n",
               order, comm.rank(), measured / 1e6, planned / 1e6,
               static_cast<double>(parts.activations) / 1e6);
  EXPECT_NEAR(planned / measured, 1, 0.03) << order << " place " << comm.rank();
  comm.barrier().wait();
}

TEST(PipelineMemory, OfEachPlaceIsWhatTheCheckerSays) {
  for (const char* order : {"gpipe", "1f1b", "interleaved", "zero-bubble"})
    test::run_ranks({.backend = "local", .size = 4},
                    [&](Communicator& comm) { compare_places(order, comm); });
}

// A CNN whose one large block makes every piece of memory that blocks take turns in as
// large as itself.
void compare_uneven_blocks(int shard, bool elastic, Communicator& comm) {
  constexpr int64_t kSlice = 8;
  const auto images = [](int64_t count) { return labelled({count, 1, 28, 28}); };
  Chain chain = make_cnn({}, {});
  const auto rule = make_update_rule({.name = "sgd"});
  auto specs = specs_of(chain);
  set_bytes(measure_blocks(chain, images, kSlice), kSlice, at::kFloat, specs);
  const Schedule schedule =
      generate(specs, {.dp = comm.size(), .shard = shard},
               {.slices = comm.size(),
                .bucket_bytes = 1 << 16,
                .elastic = elastic,
                .optimizer_states = static_cast<int>(rule->states().size()),
                .shares_memory = true});
  const auto predicted = static_cast<double>(check(schedule).largest().parts.total());
  const double measured =
      peak_of_steps(chain, schedule, *rule, comm, [&](int) { return images(kSlice); });
  if (comm.rank() == 0)
    std::fprintf(stderr, "cnn, shard %d%s: measured %.1f MB, checker %.1f MB\n", shard,
                 elastic ? ", elastic" : "", measured / 1e6, predicted / 1e6);
  EXPECT_NEAR(predicted / measured, 1, 0.03);
}

TEST_P(MemoryFigures, OfUnevenBlocksAreThoseOfTheChecker) {
  const auto [shard, elastic] = GetParam();
  test::run_ranks({.backend = "local", .size = 3}, [&](Communicator& comm) {
    compare_uneven_blocks(shard, elastic, comm);
  });
}

struct PlannedCase {
  int shard, replicate, slices;
  bool exact, elastic, shares;
  at::ScalarType compute;
};

std::vector<PlannedCase> planned_cases() {
  std::vector<PlannedCase> cases;
  for (int shard : {0, 1, 2, 3})
    for (int replicate : {1, 2})
      for (int slices : {4, 7})
        for (int bits = 0; bits < 16; ++bits) {
          if (shard == 0 && replicate > 1) continue;
          cases.push_back({shard, replicate, slices, (bits & 1) != 0, (bits & 2) != 0,
                           (bits & 4) != 0, bits & 8 ? at::kBFloat16 : at::kFloat});
        }
  return cases;
}

// What the state, and the sums that change it, take: neither more nor less than the
// plan says. Gathered parameters come with the first step.
void compare_with_plan(const PlannedCase& c, Communicator& comm) {
  Chain chain = make_cnn({}, {});
  const auto rule = make_update_rule({.name = "adamw"});
  Schedule schedule = generate(
      specs_of(chain), {.dp = comm.size(), .shard = c.shard, .replicate = c.replicate},
      {.slices = c.slices,
       .bucket_bytes = 1 << 16,
       .elastic = c.elastic,
       .exact = c.exact,
       .precision = {.compute = c.compute},
       .optimizer_states = static_cast<int>(rule->states().size()),
       .shares_memory = c.shares});
  int64_t planned_bytes = 0;
  for (const auto& buffer : schedule.buffers)
    if (buffer.holds != Buffer::Holds::kGathered) planned_bytes += buffer.bytes();
  std::unique_ptr<Communicator> shard, replicate;
  RankGroups groups = RankGroups::of(comm);
  if (c.replicate > 1) {
    const Mesh& mesh = schedule.mesh;
    shard = comm.split(mesh.coordinate(comm.rank(), Axis::kReplicate));
    replicate = comm.split(mesh.coordinate(comm.rank(), Axis::kCut));
    groups.shard = shard.get();
    groups.replicate = replicate.get();
  }
  MemoryCounter counter;
  const TensorMemoryScope scope(counter);
  const FlatState state(chain, schedule, *rule, {}, groups, /*takes_over=*/false);
  const GradientSums sums(schedule, state, groups, {.visits = !schedule.keeps_sums});
  EXPECT_EQ(counter.current(), planned_bytes)
      << "shard " << c.shard << " replicate " << c.replicate << " slices " << c.slices
      << " exact " << c.exact << " elastic " << c.elastic << " shares " << c.shares
      << " compute " << c.compute;
}

TEST(MemoryPlan, IsWhatIsAllocated) {
  test::run_ranks({.backend = "local", .size = 4}, [&](Communicator& comm) {
    for (const auto& c : planned_cases()) compare_with_plan(c, comm);
  });
}

}  // namespace
}  // namespace cohort
