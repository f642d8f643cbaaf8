// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/block.h"
#include "cohort/layers.h"
#include "cohort/nn/vocabulary_head.h"

namespace cohort {

// Language models as chains: an embedding, blocks of one width, a head. Parameters have
// the names and shapes of Hugging Face's state_dict.
//
// Fields of a batch, all (samples, tokens) of int64:
// - "tokens": what the model reads, numbers below `vocab`;
// - "target": what it is to say at each place, or -100 where that does not count. Loss
//   and count are sums over the others;
// - "segments", where options say so: numbers of documents packed into one sequence. A
//   token sees its own document alone; places are counted through the whole sequence.
//
// Sequences are at most `context` tokens long; exactly so with tensor parallelism.
// ConfigError where tensor-parallel ranks cannot have equal parts of heads, hidden
// values or (TensorPart::sequence) tokens. A vocabulary is padded.

// GPT-2 (Radford et al. 2019): transformer.wte, transformer.h.0.attn.c_attn, ...
struct GptOptions {
  int64_t vocab = 50257;
  int64_t context = 1024;
  int64_t width = 768;
  int64_t depth = 12;
  int64_t heads = 12;
  double dropout = 0;  // on embeddings, attention weights and both branches of a block
  bool tie = true;     // logits by the weights of the embedding; else by lm_head
  bool segments = false;
};
Chain make_gpt(const GptOptions& model, const LayerOptions& layers);

// 124M, 350M, 774M, 1.3B, 1.5B, 7B and tiny. ConfigError with the nearest for another.
GptOptions gpt_options(std::string_view size);
std::vector<std::string> gpt_sizes();

// Llama (Touvron et al. 2023), without biases: model.layers.0.self_attn.q_proj, ...
struct LlamaOptions {
  int64_t vocab = 32000;
  int64_t context = 2048;
  int64_t width = 4096;
  int64_t depth = 32;
  int64_t heads = 32;
  int64_t kv_heads = 32;  // each key and value serves heads / kv_heads heads
  int64_t hidden = 11008;
  double rope_theta = 10000;
  double eps = 1e-6;
  bool tie = false;
  bool segments = false;
};
Chain make_llama(const LlamaOptions& model, const LayerOptions& layers);

// BERT with masked language modelling (Devlin et al. 2018), all tokens of type 0:
// bert.encoder.layer.0.attention.self.query, ..., cls.predictions.bias. "target" is
// -100 where a token is not to be guessed.
struct BertOptions {
  int64_t vocab = 30522;
  int64_t context = 512;
  int64_t width = 768;
  int64_t depth = 12;
  int64_t heads = 12;
  int64_t hidden = 3072;
  double dropout = 0.1;  // as of GPT
  bool tie = true;       // else cls.predictions.decoder.weight is the head's own
  bool segments = false;
};
Chain make_bert(const BertOptions& model, const LayerOptions& layers);

}  // namespace cohort
