// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "cohort/nn/language_models.h"
#include "cohort/train/layout_oracle.h"

namespace cohort::test {

constexpr int64_t kOracleTokens = 8, kOracleVocabulary = 19;

// Sequences of which each is another one.
class Tokens final : public Dataset {
 public:
  // `swapped`: a rank that asks for this field alone gets the first two samples, each
  // of which is a slice, the wrong way round.
  explicit Tokens(std::string swapped = {}) : swapped_(std::move(swapped)) {}

  int64_t size() const override { return 16; }
  std::span<const std::string> fields() const override { return fields_; }
  std::string describe() const override { return "tokens"; }
  Batch gather(std::span<const int64_t> ids,
               std::span<const std::string> fields) const override {
    Batch batch = empty_batch(*this, ids, fields);
    const bool swaps = fields.size() == 1 && fields[0] == swapped_;
    for (auto& [name, tensor] : batch.fields) {
      tensor = at::empty({batch.count, kOracleTokens}, at::kLong);
      const int64_t later = name == "target" ? 1 : 0;
      for (int64_t row = 0; row < batch.count; ++row) {
        const int64_t id = swaps && ids[row] < 2 ? 1 - ids[row] : ids[row];
        for (int64_t t = 0; t < kOracleTokens; ++t)
          tensor[row][t] = (id * 7 + (t + later) * 5 + t * t) % kOracleVocabulary;
      }
    }
    return batch;
  }

 private:
  std::string swapped_;
  std::vector<std::string> fields_ = {"tokens", "target"};
};

constexpr int kOracleBlocks = 4;  // embedding, two of a transformer, head

inline GptOptions small_gpt_model(double dropout = 0) {
  return {.vocab = kOracleVocabulary,
          .context = kOracleTokens,
          .width = 16,
          .depth = 2,
          .heads = 4,
          .dropout = dropout};
}

inline OracleOptions small_gpt(const Dataset& data, double dropout = 0) {
  return {.make_chain =
              [dropout](const TensorPart& part) {
                return make_gpt(small_gpt_model(dropout), {.seed = 3, .tensor = part});
              },
          .data = &data,
          .update = {.name = "adamw"},
          .clip = 1};
}

}  // namespace cohort::test
