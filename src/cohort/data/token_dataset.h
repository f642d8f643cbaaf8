// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "cohort/data/dataset.h"
#include "cohort/data/ignored_target.h"
#include "cohort/data/token_passages.h"

namespace cohort {

struct TokenDatasetOptions {
  int64_t length = 0;  // tokens of a sample
  // Targets are the tokens one place further on; else the tokens themselves.
  bool next = true;
  // Documents stand side by side in a sample: the field "segments" has the number of
  // each token's document within the sample, and the first token of a document is
  // nobody's target.
  bool pack = false;
  int64_t end_of_text = -1;  // the last token of each document
};

// Passages of tokens as samples; sample i is passage i. The fields are "tokens" and
// "target", int64 [n, length], and "segments" where samples are packed.
// `passages` have one token more than a sample where targets are the next ones.
std::unique_ptr<Dataset> make_token_dataset(std::unique_ptr<TokenPassages> passages,
                                            const TokenDatasetOptions& options);

// Tokens of a passage that make so many samples' tokens and targets.
int64_t passage_length(const TokenDatasetOptions& options);

}  // namespace cohort
