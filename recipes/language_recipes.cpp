// SPDX-License-Identifier: Apache-2.0
#include "recipes/language_recipes.h"

#include <algorithm>
#include <utility>

#include "cohort/config.h"
#include "cohort/core/error.h"
#include "cohort/nn/language_models.h"

namespace cohort {
namespace {

enum class Task { kContinue, kFillIn };

Keys model_keys(Task task) {
  Keys keys = common_keys();
  add_text_keys(keys);
  if (task == Task::kContinue) add_continuation_keys(keys);
  keys.add_int("model.heads", 0, "of attention; 0: the recipe's own", {.lowest = 0})
      .add_int("model.context", 0, "tokens of a sample; 0: the recipe's own",
               {.lowest = 0, .highest = 1 << 20});
  return keys;
}

struct TrainingDefaults {
  const char* epochs;  // enough for the text that is taken where no other is given
  const char* batch;
  const char* rate;
  const char* no_decay;  // names of norms and biases
};

Config language_config(std::string_view recipe, Keys keys,
                       const TrainingDefaults& own) {
  Config config(std::move(keys));
  const std::pair<const char*, const char*> values[] = {
      {"epochs", own.epochs},
      {"batch", own.batch},
      {"optim.name", "adamw"},
      {"optim.lr", own.rate},
      {"optim.beta1", "0.9"},
      {"optim.beta2", "0.95"},
      {"optim.weight_decay", "0.1"},
      {"optim.no_decay", own.no_decay},
      {"optim.clip", "1"},
      {"schedule.name", "cosine"},
      {"schedule.warmup_steps", "50"},
      {"schedule.floor", "0.1"}};
  for (const auto& [key, value] : values)
    config.set(key, value, text("recipe ", recipe));
  return config;
}

TrainingDefaults tiny_defaults(const char* no_decay) {
  return {.epochs = "1", .batch = "16", .rate = "0.002", .no_decay = no_decay};
}

// What the keys say of a model, whichever it is.
template <typename Options>
void take_keys(const Config& config, Options& model) {
  model.width = given_or(config, "model.width", model.width);
  model.depth = given_or(config, "model.depth", model.depth);
  model.heads = given_or(config, "model.heads", model.heads);
  model.context = given_or(config, "model.context", model.context);
  model.segments = config.get_bool("data.pack");
}

template <typename Options>
void take_dropout(const Config& config, Options& model) {
  const double given = config.get_float("model.dropout");
  if (given >= 0) model.dropout = given;
}

LayerOptions layer_options(const Config& config, const TensorPart& part) {
  return {.seed = static_cast<uint64_t>(config.get_int("seed")), .tensor = part};
}

constexpr const char* kGptNoDecay = "bias,ln_";
constexpr const char* kLlamaNoDecay = "norm";
constexpr const char* kBertNoDecay = "bias,LayerNorm";

// A model of a published size knows at least as many tokens as that one did.
GptOptions gpt_model(const Config& config, bool tiny) {
  GptOptions model = gpt_options(tiny ? "tiny" : config.get_string("model.size"));
  take_keys(config, model);
  take_dropout(config, model);
  const int64_t needed = vocabulary_size(config, /*masked=*/false);
  model.vocab = tiny ? needed : std::max(model.vocab, needed);
  return model;
}

LlamaOptions llama_model(const Config& config) {
  LlamaOptions model{.vocab = vocabulary_size(config, /*masked=*/false),
                     .context = 128,
                     .width = 128,
                     .depth = 6,
                     .heads = 4};
  take_keys(config, model);
  model.kv_heads = std::max<int64_t>(1, model.heads / 2);
  model.hidden = 8 * model.width / 3 / 32 * 32;  // three matrices as large as two of 4
  model.hidden = std::max<int64_t>(model.hidden, model.width);
  return model;
}

BertOptions bert_model(const Config& config, bool tiny) {
  BertOptions model;
  if (tiny)
    model = {.context = 128, .width = 128, .depth = 6, .heads = 4, .dropout = 0};
  take_keys(config, model);
  take_dropout(config, model);
  model.hidden = 4 * model.width;
  const int64_t needed = vocabulary_size(config, /*masked=*/true);
  model.vocab = tiny ? needed : std::max(model.vocab, needed);
  return model;
}

}  // namespace

std::string TextRecipe::why_no_continuation(const Config& config) const {
  if (task(config).masked) return "fills in masked tokens, and continues no text";
  const std::string& kind = config.get_string("data.tokenizer");
  if (kind == "none") return "with data.tokenizer=none knows tokens, and no text";
  if (kind == "bpe" && config.get_bool("data.synthetic"))
    return "with data.tokenizer=bpe and data.synthetic=true has no text to learn from";
  return "";
}

std::string_view GptRecipe::help() const {
  return tiny_ ? "a GPT-2 of 6 blocks, 128 wide, on text (128 bytes per sample)"
               : "GPT-2 of 124M parameters and more, on text or files of tokens";
}

Config GptRecipe::defaults() const {
  Keys keys = model_keys(Task::kContinue);
  if (tiny_)
    return language_config(name(), std::move(keys), tiny_defaults(kGptNoDecay));
  keys.add_choice("model.size", "124M", gpt_sizes(), "parameters");
  Config config =
      language_config(name(), std::move(keys), {"10", "64", "0.0006", kGptNoDecay});
  config.set("data.tokenizer", "bpe", "recipe gpt");
  return config;
}

Chain GptRecipe::make_chain(const Config& config, const TensorPart& part) const {
  return make_gpt(gpt_model(config, tiny_), layer_options(config, part));
}

TextTask GptRecipe::task(const Config& config) const {
  return {.context = gpt_model(config, tiny_).context};
}

std::string_view LlamaTinyRecipe::help() const {
  return "a Llama of 6 blocks, 128 wide, on text (128 bytes per sample)";
}

Config LlamaTinyRecipe::defaults() const {
  return language_config(name(), model_keys(Task::kContinue),
                         tiny_defaults(kLlamaNoDecay));
}

Chain LlamaTinyRecipe::make_chain(const Config& config, const TensorPart& part) const {
  return make_llama(llama_model(config), layer_options(config, part));
}

TextTask LlamaTinyRecipe::task(const Config& config) const {
  return {.context = llama_model(config).context};
}

std::string_view BertRecipe::help() const {
  return tiny_ ? "a BERT of 6 blocks, 128 wide, fills in masked bytes of a text"
               : "BERT of 110M parameters, fills in masked tokens of a text";
}

Config BertRecipe::defaults() const {
  Keys keys = model_keys(Task::kFillIn);
  if (tiny_)
    return language_config(name(), std::move(keys), tiny_defaults(kBertNoDecay));
  Config config =
      language_config(name(), std::move(keys), {"10", "64", "0.0001", kBertNoDecay});
  config.set("data.tokenizer", "bpe", "recipe bert");
  return config;
}

Chain BertRecipe::make_chain(const Config& config, const TensorPart& part) const {
  return make_bert(bert_model(config, tiny_), layer_options(config, part));
}

TextTask BertRecipe::task(const Config& config) const {
  return {.context = bert_model(config, tiny_).context, .masked = true};
}

}  // namespace cohort
