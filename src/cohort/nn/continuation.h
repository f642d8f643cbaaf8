// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cohort/data/dataset.h"
#include "cohort/data/tokenizer.h"
#include "cohort/nn/token_choice.h"

namespace cohort {

struct ContinuationOptions {
  std::string prompt;    // the text that is written on; empty: a new document
  int64_t tokens = 100;  // at most; it ends before where the document does
  TokenChoice choice;
};

// A text that a language model writes on, token by token:
//   while (!text.is_done()) {
//     const Tensor logits = ...;  // by the model, from text.batch(...)
//     out << text.add(text.choose(logits));
//   }
// Thread safety: none.
class Continuation {
 public:
  // Borrows the tokenizer.
  Continuation(const Tokenizer& tokenizer, const ContinuationOptions& options);

  bool is_done() const { return ended_ || written_ >= options_.tokens; }

  // What a model reads that is to say how the text goes on: the last `context` tokens,
  // or all if there are fewer, as one sample with the fields "tokens", "segments" (one
  // document) and "places", where the last token is. `length`: of the sample, at least;
  // what is behind the last token is padding, which a causal model does not see.
  Batch batch(int64_t context, int64_t length = 1) const;

  // The token that comes next. `logits`: of each token of the model's vocabulary, which
  // may have more than the tokenizer's; any shape, device and floating type. Those that
  // stand for no text are not drawn.
  int64_t choose(const Tensor& logits) const;

  // That token comes next. Returns what it adds to the text.
  std::string add(int64_t token);

  int64_t tokens() const { return written_; }
  const std::string& text() const { return text_; }  // without the prompt

 private:
  const Tokenizer& tokenizer_;
  ContinuationOptions options_;
  std::vector<int64_t> all_;  // tokens, the prompt's too
  int64_t written_ = 0;
  std::string text_;
  bool ended_ = false;
};

}  // namespace cohort
