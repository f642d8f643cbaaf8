// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cohort/data/token_sets.h"
#include "cohort/nn/continuation.h"
#include "cohort/recipe.h"

namespace cohort {

// What a model is to learn from text, and how much of it at once.
struct TextTask {
  int64_t context = 0;  // tokens of a sample
  // It fills in tokens that were masked; else it foretells the next one.
  bool masked = false;
};

// data.tokenizer, data.vocab and data.pack: how text becomes samples.
void add_text_keys(Keys& keys);

// What they say. ConfigError for a vocabulary that the tokenizer cannot have.
TokenSetOptions token_options(const Config& config);

// sample.*: how a model continues a text.
void add_continuation_keys(Keys& keys);
ContinuationOptions continuation_options(const Config& config,
                                         const std::string& prompt);

// How the model of a config reads and writes text. `model`: SentencePiece's file, for
// data.tokenizer=bpe. ConfigError where there is no text, DataError of the file.
std::unique_ptr<Tokenizer> open_tokenizer(const Config& config,
                                          const std::string& model);

// The name it has beside checkpoints.
inline constexpr const char* kSavedTokenizer = "tokenizer.model";

// Tokens that a model must know; with the mask, if its task is to fill in.
int64_t vocabulary_size(const Config& config, bool masked);

// Text as data.dir and the tokenizer's keys say, or made-up tokens.
std::unique_ptr<DataLoading> load_text(const Config& config, const TextTask& task,
                                       bool reader);

// For Recipe::prepare(): makes the tokens, looks whether they make a sample, and puts
// the tokenizer beside checkpoints, so that their model can be talked to later.
void prepare_text(const Config& config, const TextTask& task);

}  // namespace cohort
