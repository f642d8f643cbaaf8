// SPDX-License-Identifier: Apache-2.0
// Language models against Hugging Face's: weights by name, logits, loss and gradients.
// language_golden/make.py wrote the files.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cohort/checkpoint/load_weights.h"
#include "cohort/checkpoint/safetensors.h"
#include "cohort/checkpoint/safetensors_reader.h"
#include "cohort/core/testing_folder.h"
#include "cohort/nn/language_models.h"
#include "cohort/nn/testing_language.h"

namespace cohort {
namespace {

constexpr int64_t kVocab = 19, kContext = 8;

struct Model {
  std::string name;
  std::function<Chain()> make;
};

void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }

std::string golden_file(const std::string& name) {
  return std::string(std::getenv("COHORT_SOURCE")) +
         "/src/cohort/checkpoint/language_golden/" + name + ".safetensors";
}

double furthest(const Tensor& a, const Tensor& b) {
  return (a - b).abs().max().item<double>();
}

class LanguageWeights : public testing::TestWithParam<Model> {
 protected:
  Chain loaded() const {
    Chain chain = GetParam().make();
    load_weights(golden_file(GetParam().name), chain);
    return chain;
  }
  Tensor golden(const std::string& name) const {
    return reader_.read(*reader_.find(name));
  }
  test::Text text() const { return {golden("tokens"), golden("target")}; }

  SafetensorsReader reader_{golden_file(GetParam().name + "_golden")};
};

TEST_P(LanguageWeights, GiveTheLogitsOfHuggingFace) {
  const Tensor logits = test::logits_of(loaded(), text());
  const double most = furthest(logits, golden("logits"));
  std::printf("%s: logits differ by at most %.1e\n", GetParam().name.c_str(), most);
  EXPECT_LT(most, 1e-4);
}

TEST_P(LanguageWeights, GiveTheLossAndAllGradientsOfHuggingFace) {
  const Chain chain = loaded();
  const WeightedLoss loss = test::loss_of(chain, text());
  EXPECT_NEAR(loss.sum.item<double>() / loss.count_here(),
              golden("loss").item<double>(), 1e-5);
  const auto gradients = test::gradients(chain, loss);
  double most = 0;
  for (const auto& [name, gradient] : gradients) {
    ASSERT_TRUE(reader_.find("grad." + name)) << name;
    const double difference = furthest(gradient, golden("grad." + name));
    EXPECT_LT(difference, 1e-4) << name;
    most = std::max(most, difference);
  }
  std::printf("%s: %zu gradients differ by at most %.1e\n", GetParam().name.c_str(),
              gradients.size(), most);
}

TEST_P(LanguageWeights, AreSavedUnderTheSameNamesAndEachOnce) {
  const test::TempFolder folder;
  write_safetensors(folder / "model.safetensors", loaded().parameters());
  const SafetensorsReader saved(folder / "model.safetensors");
  const SafetensorsReader given(golden_file(GetParam().name));
  ASSERT_EQ(saved.header().entries.size(), given.header().entries.size());
  for (const auto& entry : given.header().entries) {
    ASSERT_TRUE(saved.find(entry.name)) << entry.name;
    EXPECT_TRUE(at::equal(saved.read(*saved.find(entry.name)), given.read(entry)));
  }
}

INSTANTIATE_TEST_SUITE_P(Every, LanguageWeights,
                         testing::Values(Model{"gpt2",
                                               [] {
                                                 return make_gpt({.vocab = kVocab,
                                                                  .context = kContext,
                                                                  .width = 12,
                                                                  .depth = 2,
                                                                  .heads = 3},
                                                                 {});
                                               }},
                                         Model{"llama",
                                               [] {
                                                 return make_llama({.vocab = kVocab,
                                                                    .context = kContext,
                                                                    .width = 16,
                                                                    .depth = 2,
                                                                    .heads = 4,
                                                                    .kv_heads = 2,
                                                                    .hidden = 20},
                                                                   {});
                                               }},
                                         Model{"bert",
                                               [] {
                                                 return make_bert({.vocab = kVocab,
                                                                   .context = kContext,
                                                                   .width = 12,
                                                                   .depth = 2,
                                                                   .heads = 3,
                                                                   .hidden = 20,
                                                                   .dropout = 0},
                                                                  {});
                                               }}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cohort
