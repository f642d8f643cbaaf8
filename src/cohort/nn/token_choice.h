// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace cohort {

// How the next token of a text is drawn from what a model says of each.
struct TokenChoice {
  double temperature = 1;  // logits are divided by it; 0: the likeliest, always
  int64_t top_k = 0;       // from so many of the likeliest; 0: from all
  double top_p = 1;        // from the likeliest that together have so much probability
  uint64_t seed = 0;
};

// The token with that number in its text, counted from 0: it depends on `logits`,
// choice and number alone. The first of equally likely ones is taken to be likelier;
// what is -infinity is never drawn. DataError if no logit is a number.
int64_t choose_token(std::span<const double> logits, const TokenChoice& choice,
                     int64_t number);

}  // namespace cohort
