// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/testing_declared.h"

#include <ATen/ATen.h>

#include <array>

#include "cohort/nn/language_models.h"
#include "cohort/nn/models.h"
#include "cohort/optim/sgd.h"
#include "cohort/step/generator.h"

namespace cohort::test {
namespace {

constexpr int kDeclaredSlices = 4;
constexpr int64_t kDeclaredSteps = 2;
constexpr int64_t kDeclaredTokens = 8, kDeclaredVocabulary = 40;

Layout layout_of(const DeclaredCase& c) {
  return {.dp = c.ranks / (c.stages * c.tensor),
          .tp = c.tensor,
          .pp = c.stages,
          .shard = c.shard,
          .replicate = c.replicate};
}

Chain declared_chain(const DeclaredCase& c, int rank) {
  const int part = Mesh(layout_of(c)).coordinate(rank, Axis::kTensor);
  if (c.language)
    return make_gpt({.vocab = kDeclaredVocabulary,
                     .context = kDeclaredTokens,
                     .width = 64,
                     .depth = 2,
                     .heads = 4},
                    {.seed = 5, .tensor = {.rank = part, .size = c.tensor}});
  if (c.statistics)
    return make_resnet({.depths = {1, 1},
                        .width = 16,
                        .classes = 10,
                        .block = ResNetBlock::kBasic,
                        .small_images = true},
                       {.seed = 5});
  return make_mlp({.inputs = 60, .width = 64, .depth = 3, .classes = 10}, {.seed = 5});
}

Schedule step_of(const DeclaredCase& c, const Chain& chain) {
  const bool interleaved = c.order == PipelineOrder::kInterleaved;
  Precision precision;
  if (c.narrow) precision.compute = precision.reduce = at::kBFloat16;
  return generate(
      specs_of(chain), layout_of(c),
      {.slices = kDeclaredSlices,
       .pipeline = {.order = c.order, .stages_per_place = interleaved ? 2 : 1},
       .bucket_bytes = 20'000,
       .clip = c.clip,
       .elastic = c.elastic,
       .recompute = BlockChoice::parse("blocks=1", "test"),
       .exact = c.exact,
       .precision = precision,
       .shares_memory = c.shares});
}

// Every sample differs from every other.
Batch declared_batch(const DeclaredCase& c, int64_t step, int slice) {
  if (c.language) {
    const Tensor tokens =
        (at::arange(3 * kDeclaredTokens, at::kLong) * 5 + slice + step)
            .remainder(kDeclaredVocabulary)
            .view({3, kDeclaredTokens});
    return Batch::of({{"tokens", tokens}, {"target", tokens.flip(1)}},
                     {3 * slice, 3 * slice + 1, 3 * slice + 2});
  }
  const int64_t width = c.statistics ? 3 * 8 * 8 : 60;
  const Tensor input = (at::arange(3 * width) * 0.37 + slice + 7 * step).sin();
  return Batch::of(
      {{"input", c.statistics ? input.view({3, 3, 8, 8}) : input.view({3, width})},
       {"target", at::arange(3)}},
      {3 * slice, 3 * slice + 1, 3 * slice + 2});
}

bool is_gradient(What what) {
  return what == What::kLeaf || what == What::kPartial || what == What::kSum ||
         what == What::kMirrored;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const DeclaredCase& c) {
  out << "n" << c.ranks << "_pp" << c.stages << "_shard" << c.shard;
  if (c.tensor > 1) out << "_tp" << c.tensor;
  constexpr const char* kNames[] = {"_gpipe", "", "_interleaved", "_zero_bubble"};
  if (c.replicate > 1) out << "_replicate" << c.replicate;
  return out << (c.elastic ? "_elastic" : "") << (c.exact ? "_exact" : "")
             << (c.clip ? "_clip" : "") << (c.shares ? "_shares" : "")
             << (c.narrow ? "_narrow" : "") << (c.statistics ? "_statistics" : "")
             << (c.language ? "_language" : "") << kNames[static_cast<int>(c.order)];
}

std::vector<DeclaredCase> declared_cases() {
  std::vector<DeclaredCase> all;
  for (const int shard : {0, 1, 2, 3}) {
    for (const bool exact : {false, true}) {
      for (const bool elastic : {false, true}) {
        const DeclaredCase c{.shard = shard, .elastic = elastic, .exact = exact};
        all.push_back(c);
        all.push_back(c), all.back().ranks = 4, all.back().stages = 2;
        all.push_back(c), all.back().ranks = 3;  // one has two slices
      }
      all.push_back({.shard = shard, .exact = exact, .narrow = true});
      if (shard > 0)
        all.push_back({.ranks = 4, .shard = shard, .replicate = 2, .exact = exact});
    }
    all.push_back({.shard = shard, .shares = true});
    all.push_back({.shard = shard, .elastic = true, .statistics = true});
  }
  all.push_back({.statistics = true});
  for (const bool elastic : {false, true}) {
    all.push_back({.ranks = 2, .stages = 2, .elastic = elastic});
    all.push_back({.ranks = 4, .stages = 4, .elastic = elastic, .clip = true});
  }
  for (const auto order :
       {PipelineOrder::kGpipe, PipelineOrder::kInterleaved, PipelineOrder::kZeroBubble})
    for (const bool elastic : {false, true}) {
      all.push_back({.ranks = 2, .stages = 2, .elastic = elastic, .order = order});
      for (const int shard : {2, 3})
        all.push_back({.ranks = 4,
                       .stages = 2,
                       .shard = shard,
                       .elastic = elastic,
                       .exact = shard == 2,
                       .order = order});
    }
  for (const bool elastic : {false, true}) {
    all.push_back({.elastic = elastic, .language = true});
    all.push_back({.stages = 2, .elastic = elastic, .language = true});
    for (const bool exact : {false, true})
      all.push_back(
          {.tensor = 2, .elastic = elastic, .exact = exact, .language = true});
    for (const int shard : elastic ? std::array{1, 3} : std::array{0, 2})
      all.push_back({.ranks = 4,
                     .tensor = 2,
                     .shard = shard,
                     .elastic = elastic,
                     .exact = shard == 2,
                     .clip = shard == 3,
                     .language = true});
    all.push_back(
        {.ranks = 4, .stages = 2, .tensor = 2, .elastic = elastic, .language = true});
  }
  return all;
}

Schedule declared_step(const DeclaredCase& c) {
  return step_of(c, declared_chain(c, 0));
}

size_t ExecutorWatch::index_of(const Action& action) const {
  return static_cast<size_t>(&action - executor_->role().actions.data());
}

uint64_t train_declared(const DeclaredCase& c, Communicator& comm,
                        const DeclaredRun& run) {
  Chain chain = declared_chain(c, comm.rank());
  const auto rule = make_sgd({.momentum = 0.9});
  Schedule schedule = step_of(c, chain);
  if (run.alter) run.alter(schedule);
  Executor executor(chain, std::move(schedule), *rule, comm,
                    {.clip = c.clip ? 0.5 : 0.0}, {.watch = run.watch});
  if (run.watch) run.watch->watch(executor);
  for (int64_t step = 0; step < kDeclaredSteps; ++step)
    executor.run({.step = step,
                  .rate = 0.05,
                  .batch = [&](int slice) { return declared_batch(c, step, slice); },
                  .in_turn = run.in_turn});
  const uint64_t hash = executor.weights_hash();
  return executor.compare_replicas().what.empty() ? hash : 0;
}

bool is_forgotten(const std::optional<Forgotten>& forgotten, const Action& action,
                  const Value& value) {
  if (!forgotten || action.kind != forgotten->kind) return false;
  return value.what == forgotten->what ||
         (is_gradient(value.what) && is_gradient(forgotten->what));
}

bool is_of_bucket(What what) {
  return is_gradient(what) || what == What::kWhole || what == What::kState;
}

}  // namespace cohort::test
