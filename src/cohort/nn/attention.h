// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/layers.h"

namespace cohort {

// Attention of heads that a rank has all of (Vaswani et al. 2017): LibTorch's fused
// kernels, or where weights fall out (`dropout` > 0, in training) one step at a time.
class Attention {
 public:
  struct Form {
    int64_t heads = 1;      // in the whole layer
    bool causal = true;     // a token sees itself and those before it
    double dropout = 0;     // on attention weights
    std::string name = {};  // what that dropout is called
  };
  Attention(const Form& form, const TensorPart& part);

  // (samples, tokens, heads, width of a head) each, of this rank's heads; `key` and
  // `value` may have fewer, which serve as many heads each in turn. `segments`, if
  // defined: (samples, tokens), tokens see only those with an equal one. Gives
  // (samples, tokens, heads * width).
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                    const Tensor& segments, Context& context) const;

 private:
  Tensor mask(const Tensor& segments, int64_t tokens, const Tensor& like) const;
  Tensor by_steps(const Tensor& query, const Tensor& key, const Tensor& value,
                  const Tensor& mask, Context& context) const;

  Form form_;
  Dropout dropout_;
  TensorPart part_;
};

// What a block takes of a batch for that: "segments", or nothing.
std::vector<std::string> segment_fields(bool segments);

// Turns pairs of a head's elements by angles that grow with the token's place (Su et
// al. 2021), in the order of Llama's files: element i with i + width / 2.
Tensor rotate(const Tensor& heads, double theta);

}  // namespace cohort
