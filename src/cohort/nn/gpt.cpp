// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/core/nearest.h"
#include "cohort/core/parse.h"
#include "cohort/nn/attention.h"
#include "cohort/nn/language_chain.h"
#include "cohort/nn/language_models.h"
#include "cohort/nn/transformer_layers.h"
#include "cohort/nn/transformer_shape.h"

namespace cohort {
namespace {

constexpr double kGptEps = 1e-5;
constexpr char kTokenWeights[] = "transformer.wte.weight";

class GptEmbedding final : public LayerBlock {
 public:
  GptEmbedding(const GptOptions& model, const LayerOptions& layers)
      : LayerBlock("embedding", {"tokens"}),
        part_(layers.tensor),
        tokens_(tensors_, kTokenWeights, model.vocab, model.context, model.width,
                layers),
        places_(tensors_, "transformer.wpe.weight", model.context, model.width, layers),
        dropout_("transformer.drop", model.dropout) {}

  Values forward(const Values& inputs, Context& context) override {
    const Tensor tokens = tokens_(inputs.at(0), context);
    const int64_t length = tokens.size(1);
    const Tensor sum = tokens + places_(first_token(part_, length), length, context);
    return {dropout_(sum, context, first_element(part_, sum))};
  }

 private:
  TensorPart part_;
  TokenEmbedding tokens_;
  RowTable places_;
  Dropout dropout_;
};

Projection::Form gpt_form(const GptOptions& model, int64_t in, int64_t out,
                          Projection::Cut cut) {
  // Branches that add up over the depth begin smaller.
  const bool adds = cut == Projection::Cut::kRows;
  return {.in = in,
          .out = out,
          .tokens = model.context,
          .cut = cut,
          .order = WeightOrder::kInOut,
          .deviation = adds ? 0.02 / std::sqrt(2.0 * model.depth) : 0.02};
}

Projection::Form gpt_qkv(const GptOptions& model) {
  Projection::Form form =
      gpt_form(model, model.width, 3 * model.width, Projection::Cut::kColumns);
  form.groups = 3;
  return form;
}

class GptLayer final : public LayerBlock {
 public:
  using Cut = Projection::Cut;

  GptLayer(const std::string& name, const GptOptions& model, const LayerOptions& layers)
      : LayerBlock(name, segment_fields(model.segments)),
        part_(layers.tensor),
        head_width_(model.width / model.heads),
        norm_1_(tensors_, name + ".ln_1", model.width, kGptEps, layers),
        begin_1_(tensors_, model.context, model.width, layers.tensor),
        qkv_(tensors_, name + ".attn.c_attn", gpt_qkv(model), layers),
        attention_({.heads = model.heads,
                    .dropout = model.dropout,
                    .name = name + ".attn.attn_dropout"},
                   layers.tensor),
        out_(tensors_, name + ".attn.c_proj",
             gpt_form(model, model.width, model.width, Cut::kRows), layers),
        dropout_1_(name + ".attn.resid_dropout", model.dropout),
        norm_2_(tensors_, name + ".ln_2", model.width, kGptEps, layers),
        begin_2_(tensors_, model.context, model.width, layers.tensor),
        up_(tensors_, name + ".mlp.c_fc",
            gpt_form(model, model.width, 4 * model.width, Cut::kColumns), layers),
        down_(tensors_, name + ".mlp.c_proj",
              gpt_form(model, 4 * model.width, model.width, Cut::kRows), layers),
        dropout_2_(name + ".mlp.dropout", model.dropout) {}

  Values forward(const Values& inputs, Context& context) override {
    const Tensor& x = inputs.at(0);
    const Tensor segments = inputs.size() > 1 ? inputs[1] : Tensor();
    const Tensor attended = attend(norm_1_(x, context), segments, context);
    const Tensor y = add_dropped(x, attended, dropout_1_, part_, context);
    const Tensor h = up_(begin_2_(norm_2_(y, context), context), context);
    return {add_dropped(y, down_(at::gelu(h, "tanh"), context), dropout_2_, part_,
                        context)};
  }

 private:
  Tensor attend(const Tensor& x, const Tensor& segments, Context& context) const {
    const Tensor qkv = qkv_(begin_1_(x, context), context);
    const auto parts =
        qkv.view({qkv.size(0), qkv.size(1), 3, -1, head_width_}).unbind(2);
    return out_(attention_(parts[0], parts[1], parts[2], segments, context), context);
  }

  TensorPart part_;
  int64_t head_width_;
  LayerNorm norm_1_;
  SplitBegin begin_1_;
  Projection qkv_;
  Attention attention_;
  Projection out_;
  Dropout dropout_1_;
  LayerNorm norm_2_;
  SplitBegin begin_2_;
  Projection up_, down_;
  Dropout dropout_2_;
};

class GptHead final : public NormHead<LayerNorm> {
 public:
  GptHead(const GptOptions& model, const TiedWeight& embedding,
          const LayerOptions& layers)
      : NormHead("transformer.ln_f", kGptEps, model, embedding, layers) {}
};

struct GptSize {
  std::string_view name;
  GptOptions options;
};

constexpr GptSize kGptSizes[] = {
    {"124M", {.width = 768, .depth = 12, .heads = 12}},
    {"350M", {.width = 1024, .depth = 24, .heads = 16}},
    {"774M", {.width = 1280, .depth = 36, .heads = 20}},
    {"1.3B", {.width = 2048, .depth = 24, .heads = 16}},
    {"1.5B", {.width = 1600, .depth = 48, .heads = 25}},
    {"7B", {.width = 4096, .depth = 32, .heads = 32}},
    {"tiny", {.vocab = 256, .context = 128, .width = 128, .depth = 6, .heads = 4}},
};

}  // namespace

std::vector<std::string> gpt_sizes() {
  std::vector<std::string> names;
  for (const auto& size : kGptSizes) names.emplace_back(size.name);
  return names;
}

GptOptions gpt_options(std::string_view name) {
  for (const auto& size : kGptSizes)
    if (size.name == name) return size.options;
  const auto legal = gpt_sizes();
  throw ConfigError(text("[nn] unknown size of gpt '", name, "'; nearest: ",
                         nearest(name, legal), "; legal: ", join(legal, ", ")));
}

Chain make_gpt(const GptOptions& model, const LayerOptions& layers) {
  require_shape({.vocab = model.vocab,
                 .context = model.context,
                 .width = model.width,
                 .hidden = 4 * model.width,
                 .depth = model.depth,
                 .heads = model.heads,
                 .kv_heads = model.heads},
                layers.tensor);
  return language_chain<GptEmbedding, GptLayer, GptHead>(model, layers,
                                                         "transformer.h.");
}

}  // namespace cohort
