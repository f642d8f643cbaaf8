// SPDX-License-Identifier: Apache-2.0
// Rules that look at whole tensors: lars and lamb.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/optim/gradient_norm.h"
#include "cohort/optim/sum_arithmetic.h"
#include "cohort/update_rule.h"

namespace cohort {
namespace {

struct LayerGolden {
  UpdateOptions options;
  double weight_decay;
  // For each tensor: its first element, its last, the mean of squares.
  std::array<std::array<double, 3>, 6> tensors;
};

// Made by layer_golden.py: five steps of each rule, in float64.
const std::vector<LayerGolden> kLayerGolden = {
    {{.name = "lars", .momentum = 0.9, .nesterov = false, .eps = 1e-08, .trust = 0.001},
     0.0,
     {{
         {-0.7610360414537118, -0.024144103626493, 0.20763425317928877},
         {-0.5970323341245353, 0.5363075763747215, 0.21510599102699235},
         {0.08861197916666669, -2.0177817708333334, 6.675713443830567},
         {-0.45446965504593734, -0.32590273230830313, 1.9930836453241325},
         {-0.09375, -0.15625, 0.20737755043992717},
         {0.0, 0.0, 0.0},
     }}},
    {{.name = "lars", .momentum = 0.9, .nesterov = false, .eps = 1e-08, .trust = 0.02},
     0.01,
     {{
         {-0.37528321373647, 0.10482890672364575, 0.2350520690078016},
         {-0.36616815731728874, 0.3218531615286215, 0.08229355511269328},
         {0.08861197916666669, -2.0177817708333334, 6.675713443830567},
         {-0.5678160351036546, -0.42951306492310515, 1.9987653657110664},
         {-0.06705217962, -0.1117536327, 0.106082803110417},
         {0.0, 0.0, 0.0},
     }}},
    {{.name = "lars", .momentum = 0.9, .nesterov = true, .eps = 1e-08, .trust = 0.02},
     0.01,
     {{
         {-0.29875356925821334, 0.12385286905481033, 0.24690206904050255},
         {-0.33317549248127826, 0.29946123563009314, 0.07089274328731407},
         {0.09563619791666672, -2.4118369270833337, 9.072063877686352},
         {-0.7441866614138031, -0.5781081639354924, 2.6532258932322565},
         {-0.062358165629740815, -0.10393027604956799, 0.0917499528742358},
         {0.0, 0.0, 0.0},
     }}},
    {{.name = "lars", .momentum = 0.0, .nesterov = false, .eps = 1e-08, .trust = 0.02},
     0.01,
     {{
         {-0.6649445629131817, 0.0019093552397321518, 0.20693680664957273},
         {-0.5439460100033872, 0.5074724267903695, 0.1857273940155764},
         {-0.37786458333333334, -0.3286458333333333, 0.8267302246093748},
         {-0.13890971498744722, -0.10501268713509677, 0.12199237389930803},
         {-0.08546452992, -0.1424408832, 0.17234195053234042},
         {0.0, 0.0, 0.0},
     }}},
    {{.name = "lamb", .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-06},
     0.0,
     {{
         {-0.6648476945082143, 0.06985779554793661, 0.21636298440292367},
         {-0.5017769786225416, 0.48041646274358507, 0.16728287102724235},
         {-0.2965181706691499, 0.0825762893006162, 0.20046557219773864},
         {-0.11518235135563248, -0.11490691440254465, 0.01262146098872246},
         {-0.09375, -0.15625, 0.20737755043992717},
         {0.0, 0.0, 0.0},
     }}},
    {{.name = "lamb", .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-06},
     0.1,
     {{
         {-0.656348184919222, 0.06954610225777957, 0.2113587704945549},
         {-0.49897256734071205, 0.4773248111317174, 0.16497782638308692},
         {-0.2965181706691499, 0.0825762893006162, 0.20046557219773864},
         {-0.11518634651528195, -0.11490800044305878, 0.012615203883229181},
         {-0.07403632031250001, -0.1233938671875, 0.12933284731505923},
         {0.0, 0.0, 0.0},
     }}},
    {{.name = "lamb", .beta1 = 0.8, .beta2 = 0.95, .eps = 0.01},
     0.3,
     {{
         {-0.6306717037517037, 0.06318413845084446, 0.1994843691619798},
         {-0.4896109829001243, 0.46817964280897756, 0.15652360585442582},
         {-0.33579729617573967, 0.10746296254055691, 0.20194470187503102},
         {-0.08559403645893654, -0.0781059726028866, 0.008252724804515646},
         {-0.07403632031250001, -0.12339386718749999, 0.12933284731505923},
         {0.0, 0.0, 0.0},
     }}},
};

// A tensor that several ranks hold: cut where they say, at multiples of a chunk.
template <typename Real>
struct CutTensor {
  CutTensor(const UpdateRule& rule, std::vector<Real> values, ParameterTraits given)
      : p(std::move(values)),
        g(p.size()),
        states(rule.states().size(), std::vector<Real>(p.size())),
        traits(given) {}

  int64_t numel() const { return static_cast<int64_t>(p.size()); }

  template <typename Part>
  UpdateStretch<Part> stretch(std::vector<Part*>& pointers, int64_t begin,
                              int64_t end) {
    pointers.clear();
    for (auto& state : states) pointers.push_back(state.data() + begin);
    return {p.data() + begin, g.data() + begin, pointers, end - begin};
  }

  // Both phases, each rank with its part of the chunks, and the ranks in any order.
  void step(const UpdateRule& rule, const StepScalars& scalars,
            std::vector<int64_t> cuts) {
    const auto sums = static_cast<size_t>(rule.reductions());
    std::vector<double> chunks((numel() + kNormChunk - 1) / kNormChunk * sums);
    std::vector<const Real*> reads;
    for (size_t part = cuts.size() - 1; part-- > 0;)
      for (int64_t at = cuts[part]; at < cuts[part + 1]; at += kNormChunk)
        rule.reduce(stretch(reads, at, std::min(at + kNormChunk, cuts[part + 1])),
                    traits, scalars,
                    std::span(chunks).subspan(at / kNormChunk * sums, sums));
    totals.resize(sums);
    add_chunks(chunks, totals);
    std::vector<Real*> writes;
    for (size_t part = cuts.size() - 1; part-- > 0;)
      rule.apply(stretch(writes, cuts[part], cuts[part + 1]), traits, totals, scalars);
  }

  std::vector<Real> p, g;
  std::vector<std::vector<Real>> states;
  ParameterTraits traits;
  std::vector<double> totals;
};

// As in layer_golden.py: multiples of a power of two.
template <typename Real>
std::vector<Real> made_numbers(int64_t count, int64_t a, int64_t b, int64_t modulus,
                               double divisor) {
  std::vector<Real> all(count);
  for (int64_t i = 0; i < count; ++i)
    all[i] = static_cast<Real>(
        static_cast<double>((i * a + b) % modulus - modulus / 2) / divisor);
  return all;
}

struct LayerCase {
  int64_t numel;
  bool adapts, zero, idle;
};
constexpr std::array<LayerCase, 6> kLayerCases = {{{2500, true, false, false},
                                                   {3, true, false, false},
                                                   {5, false, false, false},
                                                   {4, true, true, false},
                                                   {1030, true, false, true},
                                                   {2, true, true, true}}};

template <typename Real>
CutTensor<Real> run_layer(const UpdateRule& rule, double weight_decay, int64_t t) {
  const LayerCase& c = kLayerCases[t];
  auto p = made_numbers<Real>(c.numel, 37, 11 * t, 101, 64);
  if (c.zero) std::fill(p.begin(), p.end(), Real(0));
  CutTensor<Real> tensor(
      rule, p, {.weight_decay = c.adapts ? weight_decay : 0, .adapts = c.adapts});
  for (int64_t step = 0; step < 5; ++step) {
    // As a sum over 4 samples, to be scaled to their mean.
    tensor.g = made_numbers<Real>(c.numel, 29, 17 * t + 7 * step, 89, 64);
    if (c.idle) std::fill(tensor.g.begin(), tensor.g.end(), Real(0));
    const double rate = rule.name() == "lars" ? 4.0 : 0.1;
    tensor.step(rule,
                {.rate = rate / static_cast<double>(step + 1),
                 .grad_scale = 0.25,
                 .step = step + 1},
                {0, c.numel});
  }
  return tensor;
}

template <typename Real>
void expect_golden(double tolerance) {
  for (const auto& golden : kLayerGolden) {
    const auto rule = make_update_rule(golden.options);
    EXPECT_EQ(rule->name(), golden.options.name);
    for (size_t t = 0; t < kLayerCases.size(); ++t) {
      const auto tensor =
          run_layer<Real>(*rule, golden.weight_decay, static_cast<int64_t>(t));
      double squares = 0;
      for (const double x : tensor.p) squares += x * x;
      const std::array<double, 3> found = {tensor.p.front(), tensor.p.back(),
                                           squares / tensor.p.size()};
      for (int i = 0; i < 3; ++i)
        EXPECT_NEAR(found[i], golden.tensors[t][i], tolerance)
            << golden.options.name << " momentum " << golden.options.momentum
            << " decay " << golden.weight_decay << " tensor " << t << " value " << i;
    }
  }
}

TEST(LayerRule, FiveStepsInDoubleAreThosePublished) { expect_golden<double>(1e-12); }

TEST(LayerRule, FiveStepsInFloatAreNearThem) { expect_golden<float>(1e-5); }

template <typename Real>
void expect_same_bits_at_every_cut(const UpdateRule& rule) {
  std::mt19937_64 random(3);
  const int64_t numel = 9 * kNormChunk + 77;
  const auto run = [&](auto cuts_of_step) {
    CutTensor<Real> tensor(rule, made_numbers<Real>(numel, 37, 5, 101, 77), {1e-3});
    for (int64_t step = 1; step <= 3; ++step) {
      tensor.g = made_numbers<Real>(numel, 29, step, 89, 33);
      tensor.step(rule, {.rate = 0.7, .grad_scale = 1.0 / 7, .step = step},
                  cuts_of_step());
    }
    return tensor;
  };
  const auto whole = run([&] { return std::vector<int64_t>{0, numel}; });
  for (int trial = 0; trial < 20; ++trial) {
    const auto parts = run([&] {
      std::vector<int64_t> cuts = {0, numel};
      for (auto n = random() % 6; n > 0; --n)
        cuts.push_back(static_cast<int64_t>(random() % 10) * kNormChunk);
      std::sort(cuts.begin(), cuts.end());
      return cuts;
    });
    EXPECT_EQ(parts.totals, whole.totals);
    EXPECT_EQ(parts.p, whole.p);
    EXPECT_EQ(parts.states, whole.states);
  }
}

class LayerRules : public testing::TestWithParam<UpdateOptions> {};

TEST_P(LayerRules, HaveTheSameBitsAtEveryCut) {
  const auto rule = make_update_rule(GetParam());
  expect_same_bits_at_every_cut<float>(*rule);
  expect_same_bits_at_every_cut<double>(*rule);
}

TEST_P(LayerRules, WantTotalsOfTensorsThatAdaptOnly) {
  const auto rule = make_update_rule(GetParam());
  CutTensor<float> tensor(*rule, {1, 2, 3}, {});
  std::vector<float*> writes;
  const auto all = tensor.stretch(writes, 0, 3);
  EXPECT_THROW(rule->apply(all, {.adapts = true}, {}, {}), BugError);
  rule->apply(all, {.adapts = false}, {}, {});
}

TEST_P(LayerRules, RefuseMoreThanAChunk) {
  const auto rule = make_update_rule(GetParam());
  CutTensor<float> tensor(*rule, std::vector<float>(kNormChunk + 1), {});
  std::vector<const float*> reads;
  std::array<double, 2> sums;
  rule->reduce(tensor.stretch(reads, 0, kNormChunk), {}, {}, sums);
  EXPECT_THROW(rule->reduce(tensor.stretch(reads, 0, kNormChunk + 1), {}, {}, sums),
               BugError);
}

INSTANTIATE_TEST_SUITE_P(
    All, LayerRules,
    testing::Values(UpdateOptions{.name = "lars", .momentum = 0},
                    UpdateOptions{.name = "lars"},
                    UpdateOptions{.name = "lars", .nesterov = true},
                    UpdateOptions{.name = "lamb"}),
    [](const auto& info) { return text(info.param.name, info.index); });

TEST(Lars, SumsOfAShortTensorAreItsSquares) {
  const auto rule = make_update_rule({.name = "lars"});
  CutTensor<float> tensor(*rule, {3, 4, -12}, {});
  tensor.g = {0.5f, 0, 2};
  tensor.step(*rule, {.grad_scale = 0.25}, {0, 3});
  EXPECT_EQ(tensor.totals, (std::vector<double>{169, 4.25}));
}

TEST(Lamb, FirstPhaseSeesTheMomentsOfTheSecond) {
  const auto rule = make_update_rule({.name = "lamb", .eps = 0});
  CutTensor<double> tensor(*rule, {2, -1}, {.weight_decay = 0.5});
  tensor.g = {-3, 8};
  std::vector<const double*> reads;
  std::array<double, 2> sums;
  const StepScalars scalars{.rate = 0.1, .step = 1};
  rule->reduce(tensor.stretch(reads, 0, 2), tensor.traits, scalars, sums);
  EXPECT_EQ(tensor.states[0], (std::vector<double>{0, 0}));
  EXPECT_EQ(tensor.states[1], (std::vector<double>{0, 0}));
  // In its first step Adam goes by the gradient's sign: u = (-1 + 1, 1 - 0.5).
  EXPECT_DOUBLE_EQ(sums[0], 5);
  EXPECT_NEAR(sums[1], 0.25, 1e-14);
  tensor.step(*rule, scalars, {0, 2});
  EXPECT_NEAR(tensor.p[0], 2, 1e-14);
  EXPECT_NEAR(tensor.p[1], -1 - 0.1 * std::sqrt(5), 1e-14);
}

TEST(AddChunks, IsATreeWhoseNodesCanBeAddedApart) {
  std::mt19937_64 random(5);
  std::vector<double> all(41);
  for (auto& x : all) x = std::ldexp(static_cast<double>(random() % 1000003), -7) / 3;
  const auto sum = [](const double* from, size_t count) {
    return arithmetic::tree_sum(from, static_cast<int64_t>(count), 1);
  };
  EXPECT_EQ(sum(all.data(), 0), 0);
  EXPECT_EQ(sum(all.data(), 1), all[0]);
  EXPECT_EQ(sum(all.data(), 3), (all[0] + all[1]) + all[2]);
  EXPECT_EQ(sum(all.data(), 7),
            ((all[0] + all[1]) + (all[2] + all[3])) + ((all[4] + all[5]) + all[6]));
  for (const size_t node : {1, 2, 4, 8, 16, 32, 64}) {
    std::vector<double> nodes;
    for (size_t at = 0; at < all.size(); at += node)
      nodes.push_back(sum(all.data() + at, std::min(node, all.size() - at)));
    EXPECT_EQ(sum(nodes.data(), nodes.size()), sum(all.data(), all.size())) << node;
  }
}

TEST(AddChunks, AddsSumsThatLieSideBySide) {
  std::array<double, 2> totals;
  add_chunks(std::array{1.0, 10.0, 2.0, 20.0, 3.0, 30.0}, totals);
  EXPECT_EQ(totals, (std::array{6.0, 60.0}));
  EXPECT_THROW(add_chunks(std::array{1.0, 2.0, 3.0}, totals), BugError);
}

}  // namespace
}  // namespace cohort
