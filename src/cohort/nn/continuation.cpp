// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/continuation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

namespace cohort {

Continuation::Continuation(const Tokenizer& tokenizer,
                           const ContinuationOptions& options)
    : tokenizer_(tokenizer), options_(options) {
  std::vector<uint16_t> tokens;
  tokenizer.encode(options.prompt, tokens);
  all_.assign(tokens.begin(), tokens.end());
  if (all_.empty()) all_.push_back(tokenizer.vocabulary().end_of_text);
}

Batch Continuation::batch(int64_t context, int64_t length) const {
  const int64_t read = std::min(context, static_cast<int64_t>(all_.size()));
  const Tensor tokens = at::zeros({1, std::max(read, length)}, at::kLong);
  std::copy(all_.end() - read, all_.end(), tokens.mutable_data_ptr<int64_t>());
  return Batch::of({{"tokens", tokens},
                    {"segments", at::zeros_like(tokens)},
                    {"places", at::full({1, 1}, read - 1, at::kLong)}});
}

int64_t Continuation::choose(const Tensor& logits) const {
  const Tensor given = logits.detach().to(at::kCPU, at::kDouble).flatten().contiguous();
  const double* const values = given.const_data_ptr<double>();
  const Vocabulary& known = tokenizer_.vocabulary();
  std::vector<double> possible(static_cast<size_t>(known.size),
                               -std::numeric_limits<double>::infinity());
  for (int64_t token = 0; token < std::min(known.size, given.numel()); ++token)
    if ((token >= known.begin && token < known.end) || token == known.end_of_text)
      possible[static_cast<size_t>(token)] = values[token];
  return choose_token(possible, options_.choice, written_);
}

std::string Continuation::add(int64_t token) {
  all_.push_back(token);
  ++written_;
  ended_ = token == tokenizer_.vocabulary().end_of_text;
  const std::string more = tokenizer_.decode({&token, 1});
  text_ += more;
  return more;
}

}  // namespace cohort
