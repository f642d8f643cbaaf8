// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/recipe.h"
#include "recipes/text_data.h"

namespace cohort {

// What language models share: text as data, AdamW without decay of norms and biases, a
// cosine behind a warm-up, and gradients that are clipped.
class TextRecipe : public Recipe {
 public:
  void prepare(const Config& config) const final { prepare_text(config, task(config)); }
  std::unique_ptr<DataLoading> load(const Config& config, bool reader) const final {
    return load_text(config, task(config), reader);
  }
  int64_t context(const Config& config) const final { return task(config).context; }
  std::string why_no_continuation(const Config& config) const final;

 protected:
  virtual TextTask task(const Config& config) const = 0;
};

// GPT-2 that foretells the next token:
//   cohort train gpt --set data.dir=fineweb --set data.tokenizer=none
// model.size is one of those it was made in; gpt-tiny is 6 blocks of 128, for 128
// bytes.
class GptRecipe final : public TextRecipe {
 public:
  explicit GptRecipe(bool tiny) : tiny_(tiny) {}
  std::string_view name() const override { return tiny_ ? "gpt-tiny" : "gpt"; }
  std::string_view help() const override;
  Config defaults() const override;
  Chain make_chain(const Config& config, const TensorPart& part) const override;

 protected:
  TextTask task(const Config& config) const override;

 private:
  bool tiny_;
};

// A model of Llama's form, with half as many heads of keys and values as of queries:
//   cohort train llama-tiny -n 2
class LlamaTinyRecipe final : public TextRecipe {
 public:
  std::string_view name() const override { return "llama-tiny"; }
  std::string_view help() const override;
  Config defaults() const override;
  Chain make_chain(const Config& config, const TensorPart& part) const override;

 protected:
  TextTask task(const Config& config) const override;
};

// BERT that fills in the tokens that were masked:
//   cohort train bert-tiny -n 2
class BertRecipe final : public TextRecipe {
 public:
  explicit BertRecipe(bool tiny) : tiny_(tiny) {}
  std::string_view name() const override { return tiny_ ? "bert-tiny" : "bert"; }
  std::string_view help() const override;
  Config defaults() const override;
  Chain make_chain(const Config& config, const TensorPart& part) const override;

 protected:
  TextTask task(const Config& config) const override;

 private:
  bool tiny_;
};

}  // namespace cohort
