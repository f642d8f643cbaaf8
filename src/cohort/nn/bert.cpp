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

constexpr double kBertEps = 1e-12;
constexpr int64_t kTokenTypes = 2;

class BertEmbedding final : public LayerBlock {
 public:
  BertEmbedding(const BertOptions& model, const LayerOptions& layers)
      : LayerBlock("embedding", {"tokens"}),
        part_(layers.tensor),
        tokens_(tensors_, kName + "word_embeddings.weight", model.vocab, model.context,
                model.width, layers),
        places_(tensors_, kName + "position_embeddings.weight", model.context,
                model.width, layers),
        types_(tensors_, kName + "token_type_embeddings.weight", kTokenTypes,
               model.width, layers),
        norm_(tensors_, kName + "LayerNorm", model.width, kBertEps, layers),
        dropout_("bert.embeddings.dropout", model.dropout) {}

  // All tokens are of the first type.
  Values forward(const Values& inputs, Context& context) override {
    const Tensor tokens = tokens_(inputs.at(0), context);
    const int64_t length = tokens.size(1);
    const Tensor placed = tokens + places_(first_token(part_, length), length, context);
    const Tensor x = norm_(placed + types_(0, 1, context), context);
    return {dropout_(x, context, first_element(part_, x))};
  }

 private:
  inline static const std::string kName = "bert.embeddings.";
  TensorPart part_;
  TokenEmbedding tokens_;
  RowTable places_, types_;
  LayerNorm norm_;
  Dropout dropout_;
};

// Norms stand behind the sums (Devlin et al. 2018).
class BertLayer final : public LayerBlock {
 public:
  using Cut = Projection::Cut;

  BertLayer(const std::string& name, const BertOptions& model,
            const LayerOptions& layers)
      : LayerBlock(name, segment_fields(model.segments)),
        part_(layers.tensor),
        head_width_(model.width / model.heads),
        begin_1_(tensors_, model.context, model.width, layers.tensor),
        q_(tensors_, name + ".attention.self.query", square(model, Cut::kColumns),
           layers),
        k_(tensors_, name + ".attention.self.key", square(model, Cut::kColumns),
           layers),
        v_(tensors_, name + ".attention.self.value", square(model, Cut::kColumns),
           layers),
        attention_({.heads = model.heads,
                    .causal = false,
                    .dropout = model.dropout,
                    .name = name + ".attention.self.dropout"},
                   layers.tensor),
        out_(tensors_, name + ".attention.output.dense", square(model, Cut::kRows),
             layers),
        dropout_1_(name + ".attention.output.dropout", model.dropout),
        norm_1_(tensors_, name + ".attention.output.LayerNorm", model.width, kBertEps,
                layers),
        begin_2_(tensors_, model.context, model.width, layers.tensor),
        up_(tensors_, name + ".intermediate.dense",
            {.in = model.width,
             .out = model.hidden,
             .tokens = model.context,
             .cut = Cut::kColumns},
            layers),
        down_(tensors_, name + ".output.dense",
              {.in = model.hidden,
               .out = model.width,
               .tokens = model.context,
               .cut = Cut::kRows},
              layers),
        dropout_2_(name + ".output.dropout", model.dropout),
        norm_2_(tensors_, name + ".output.LayerNorm", model.width, kBertEps, layers) {}

  Values forward(const Values& inputs, Context& context) override {
    const Tensor& x = inputs.at(0);
    const Tensor segments = inputs.size() > 1 ? inputs[1] : Tensor();
    const Tensor attended = attend(x, segments, context);
    const Tensor y =
        norm_1_(add_dropped(x, attended, dropout_1_, part_, context), context);
    const Tensor h = at::gelu(up_(begin_2_(y, context), context));
    const Tensor z = down_(h, context);
    return {norm_2_(add_dropped(y, z, dropout_2_, part_, context), context)};
  }

 private:
  static Projection::Form square(const BertOptions& model, Cut cut) {
    return {.in = model.width, .out = model.width, .tokens = model.context, .cut = cut};
  }

  Tensor by_heads(const Tensor& x) const {
    return x.view({x.size(0), x.size(1), -1, head_width_});
  }

  Tensor attend(const Tensor& given, const Tensor& segments, Context& context) const {
    const Tensor x = begin_1_(given, context);
    const Tensor q = by_heads(q_(x, context)), k = by_heads(k_(x, context));
    const Tensor v = by_heads(v_(x, context));
    return out_(attention_(q, k, v, segments, context), context);
  }

  TensorPart part_;
  int64_t head_width_;
  SplitBegin begin_1_;
  Projection q_, k_, v_;
  Attention attention_;
  Projection out_;
  Dropout dropout_1_;
  LayerNorm norm_1_;
  SplitBegin begin_2_;
  Projection up_, down_;
  Dropout dropout_2_;
  LayerNorm norm_2_;
};

class BertHead final : public LanguageHead {
 public:
  BertHead(const BertOptions& model, const TiedWeight& embedding,
           const LayerOptions& layers)
      : dense_(tensors_, "cls.predictions.transform.dense",
               {.in = model.width, .out = model.width}, layers),
        norm_(tensors_, "cls.predictions.transform.LayerNorm", model.width, kBertEps,
              layers),
        weight_(add_head_weight(tensors_, "cls.predictions.decoder.weight", embedding,
                                {model.vocab, model.width}, layers)),
        bias_(add_part(tensors_, "cls.predictions.bias", {.shape = {model.vocab}},
                       all_equal_to(0), layers.tensor)),
        head_(tensors_, weight_, bias_, head_form(model), layers.tensor) {}

 private:
  Tensor before_head(const Tensor& input, Context& context) const override {
    return norm_(at::gelu(dense_(input, context)), context);
  }
  const VocabularyHead& head() const override { return head_; }

  Projection dense_;
  LayerNorm norm_;
  Tensor weight_, bias_;
  VocabularyHead head_;
};

}  // namespace

Chain make_bert(const BertOptions& model, const LayerOptions& layers) {
  require_shape({.vocab = model.vocab,
                 .context = model.context,
                 .width = model.width,
                 .hidden = model.hidden,
                 .depth = model.depth,
                 .heads = model.heads,
                 .kv_heads = model.heads},
                layers.tensor);
  return language_chain<BertEmbedding, BertLayer, BertHead>(model, layers,
                                                            "bert.encoder.layer.");
}

}  // namespace cohort
