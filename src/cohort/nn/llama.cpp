// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <utility>

#include "cohort/nn/attention.h"
#include "cohort/nn/language_chain.h"
#include "cohort/nn/language_models.h"
#include "cohort/nn/transformer_layers.h"
#include "cohort/nn/transformer_shape.h"

namespace cohort {
namespace {

class LlamaEmbedding final : public LayerBlock {
 public:
  LlamaEmbedding(const LlamaOptions& model, const LayerOptions& layers)
      : LayerBlock("embedding", {"tokens"}),
        tokens_(tensors_, "model.embed_tokens.weight", model.vocab, model.context,
                model.width, layers) {}

  Values forward(const Values& inputs, Context& context) override {
    return {tokens_(inputs.at(0), context)};
  }

 private:
  TokenEmbedding tokens_;
};

class LlamaLayer final : public LayerBlock {
 public:
  using Cut = Projection::Cut;

  LlamaLayer(const std::string& name, const LlamaOptions& model,
             const LayerOptions& layers)
      : LayerBlock(name, segment_fields(model.segments)),
        head_width_(model.width / model.heads),
        theta_(model.rope_theta),
        norm_1_(tensors_, name + ".input_layernorm", model.width, model.eps, layers),
        begin_1_(tensors_, model.context, model.width, layers.tensor),
        q_(tensors_, name + ".self_attn.q_proj",
           form(model, model.width, model.width, Cut::kColumns), layers),
        k_(tensors_, name + ".self_attn.k_proj",
           form(model, model.width, head_width_ * model.kv_heads, Cut::kColumns),
           layers),
        v_(tensors_, name + ".self_attn.v_proj",
           form(model, model.width, head_width_ * model.kv_heads, Cut::kColumns),
           layers),
        attention_({.heads = model.heads}, layers.tensor),
        out_(tensors_, name + ".self_attn.o_proj",
             form(model, model.width, model.width, Cut::kRows), layers),
        norm_2_(tensors_, name + ".post_attention_layernorm", model.width, model.eps,
                layers),
        begin_2_(tensors_, model.context, model.width, layers.tensor),
        gate_(tensors_, name + ".mlp.gate_proj",
              form(model, model.width, model.hidden, Cut::kColumns), layers),
        up_(tensors_, name + ".mlp.up_proj",
            form(model, model.width, model.hidden, Cut::kColumns), layers),
        down_(tensors_, name + ".mlp.down_proj",
              form(model, model.hidden, model.width, Cut::kRows), layers) {}

  Values forward(const Values& inputs, Context& context) override {
    const Tensor& x = inputs.at(0);
    const Tensor segments = inputs.size() > 1 ? inputs[1] : Tensor();
    const Tensor y = x + attend(norm_1_(x, context), segments, context);
    const Tensor h = begin_2_(norm_2_(y, context), context);
    const Tensor gate = at::silu(gate_(h, context));
    return {y + down_(gate * up_(h, context), context)};
  }

 private:
  static Projection::Form form(const LlamaOptions& model, int64_t in, int64_t out,
                               Cut cut) {
    return {.in = in, .out = out, .tokens = model.context, .cut = cut, .bias = false};
  }

  Tensor by_heads(const Tensor& x) const {
    return x.view({x.size(0), x.size(1), -1, head_width_});
  }

  Tensor attend(const Tensor& given, const Tensor& segments, Context& context) const {
    const Tensor x = begin_1_(given, context);
    const Tensor q = rotate(by_heads(q_(x, context)), theta_);
    const Tensor k = rotate(by_heads(k_(x, context)), theta_);
    const Tensor v = by_heads(v_(x, context));
    return out_(attention_(q, k, v, segments, context), context);
  }

  int64_t head_width_;
  double theta_;
  RmsNorm norm_1_;
  SplitBegin begin_1_;
  Projection q_, k_, v_;
  Attention attention_;
  Projection out_;
  RmsNorm norm_2_;
  SplitBegin begin_2_;
  Projection gate_, up_, down_;
};

class LlamaHead final : public NormHead<RmsNorm> {
 public:
  LlamaHead(const LlamaOptions& model, const TiedWeight& embedding,
            const LayerOptions& layers)
      : NormHead("model.norm", model.eps, model, embedding, layers) {}
};

}  // namespace

Chain make_llama(const LlamaOptions& model, const LayerOptions& layers) {
  require_shape({.vocab = model.vocab,
                 .context = model.context,
                 .width = model.width,
                 .hidden = model.hidden,
                 .depth = model.depth,
                 .heads = model.heads,
                 .kv_heads = model.kv_heads,
                 .rotary = true},
                layers.tensor);
  return language_chain<LlamaEmbedding, LlamaLayer, LlamaHead>(model, layers,
                                                               "model.layers.");
}

}  // namespace cohort
