// SPDX-License-Identifier: Apache-2.0
#include "recipes/text_data.h"

#include <ATen/ATen.h>

#include <cstring>
#include <filesystem>
#include <future>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/data/masked_tokens.h"
#include "cohort/data/read_once.h"
#include "cohort/data/token_dataset.h"

namespace cohort {
namespace {

constexpr int64_t kMostTokens = 65'536;  // in a vocabulary: tokens have 16 bits
constexpr int64_t kBpeVocabulary = 4'096;
constexpr int64_t kGpt2Vocabulary = 50'257;  // the vocabulary of ready tokens

Tensor bytes_of(const std::string& text) {
  Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr<uint8_t>(), text.data(), text.size());
  return bytes;
}

std::string text_of(const Tensor& bytes) {
  return {reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>()),
          static_cast<size_t>(bytes.numel())};
}

TokenDatasetOptions sample_options(const Config& config, const TextTask& task) {
  return {.length = task.context,
          .next = !task.masked,
          .pack = config.get_bool("data.pack"),
          .end_of_text = vocabulary_of(token_options(config)).end_of_text};
}

// With the masks that a task has: new ones in every epoch of training.
DataSets with_masks(DataSets sets, const Config& config, const TextTask& task) {
  if (!task.masked) return sets;
  const MaskOptions options{.vocabulary = vocabulary_of(token_options(config)),
                            .seed = static_cast<uint64_t>(config.get_int("seed"))};
  sets.augment = mask_tokens(options);
  if (sets.valid) sets.valid = make_masked_dataset(std::move(sets.valid), options);
  return sets;
}

struct SplitPassages {
  std::unique_ptr<TokenPassages> train, valid;
};

SplitPassages open_passages(const TokenSets& files,
                            const TokenDatasetOptions& samples) {
  const PassageOptions form{.length = passage_length(samples),
                            .stride = samples.length};
  return {map_passages(files.name + " train", files.train, form),
          map_passages(files.name + " validation", files.valid, form)};
}

std::function<std::unique_ptr<Tokenizer>()> tokenizer_of(const Config& config,
                                                         const std::string& model) {
  return [=] { return open_tokenizer(config, model); };
}

class SyntheticText final : public DataLoading {
 public:
  SyntheticText(const Config& config, const TextTask& task)
      : config_(config), task_(task) {}

  DataSets finish(Communicator*) override {
    const TokenDatasetOptions samples = sample_options(config_, task_);
    DataSets sets;
    sets.train = make_token_dataset(
        synthetic_passages({.length = passage_length(samples),
                            .vocabulary = vocabulary_of(token_options(config_)).size,
                            .seed = static_cast<uint64_t>(config_.get_int("seed"))}),
        samples);
    sets.tokenizer = tokenizer_of(config_, /*model=*/"");
    return with_masks(std::move(sets), config_, task_);
  }

 private:
  Config config_;
  TextTask task_;
};

class TextLoading final : public DataLoading {
 public:
  TextLoading(const Config& config, const TextTask& task, bool reader)
      : config_(config), task_(task) {
    if (reader)
      preparing_ =
          std::async(std::launch::async, prepare_tokens, token_options(config));
  }

  // The first rank makes the tokens, if nobody has before; all map the same files.
  DataSets finish(Communicator* node) override {
    const auto told = read_once_per_node(node, [this] {
      const TokenSets made = preparing_.valid()
                                 ? preparing_.get()
                                 : prepare_tokens(token_options(config_));
      return std::vector<Tensor>{bytes_of(encode(made))};
    });
    const TokenSets files = decode_token_sets(text_of(told.at(0)));
    const TokenDatasetOptions samples = sample_options(config_, task_);
    SplitPassages passages = open_passages(files, samples);
    DataSets sets;
    sets.train = make_token_dataset(std::move(passages.train), samples);
    sets.valid = make_token_dataset(std::move(passages.valid), samples);
    sets.tokenizer = tokenizer_of(config_, files.tokenizer);
    return with_masks(std::move(sets), config_, task_);
  }

 private:
  Config config_;
  TextTask task_;
  std::future<TokenSets> preparing_;
};

void save_tokenizer(const std::string& from, const std::string& dir) {
  const std::filesystem::path to = std::filesystem::path(dir) / kSavedTokenizer;
  const std::string model = read_file(from);
  std::error_code ignored;
  if (!std::filesystem::exists(to, ignored))
    return write_file_atomically(to, model, ErrorKind::kCheckpoint);
  if (read_file(to, ErrorKind::kCheckpoint) != model)
    throw CheckpointError(text("[recipes] ", to.string(),
                               ": is of another text or data.vocab; legal: those that "
                               "it was made of, or another checkpoint.dir"));
}

}  // namespace

void add_text_keys(Keys& keys) {
  keys.add_choice("data.tokenizer", "byte", {"byte", "bpe", "none"},
                  "how text becomes tokens: its bytes; pairs learned from it; not at "
                  "all, since data.dir has files of tokens")
      .add_int("data.vocab", 0,
               text("tokens of the vocabulary; 0: ", kBpeVocabulary, " of bpe, ",
                    kGpt2Vocabulary, " of none"),
               {.lowest = 0, .highest = kMostTokens})
      .add_bool("data.pack", false,
                "documents of a sample do not see one another, and no target lies "
                "across a border");
}

void add_continuation_keys(Keys& keys) {
  const ContinuationOptions usual;
  keys.add_int("sample.tokens", usual.tokens, "most tokens that --sample writes",
               {.lowest = 1, .highest = 1'000'000})
      .add_float("sample.temperature", 0.8,
                 "above 1: bolder, below: more careful; 0: the likeliest token, always",
                 {.lowest = 0, .highest = 1e6})
      .add_int("sample.top_k", 0, "draw among so many of the likeliest; 0: all",
               {.lowest = 0})
      .add_float("sample.top_p", 1,
                 "draw among the likeliest that have this probability together",
                 {.lowest = 0, .highest = 1});
}

ContinuationOptions continuation_options(const Config& config,
                                         const std::string& prompt) {
  return {.prompt = prompt,
          .tokens = config.get_int("sample.tokens"),
          .choice = {.temperature = config.get_float("sample.temperature"),
                     .top_k = config.get_int("sample.top_k"),
                     .top_p = config.get_float("sample.top_p"),
                     .seed = static_cast<uint64_t>(config.get_int("seed"))}};
}

std::unique_ptr<Tokenizer> open_tokenizer(const Config& config,
                                          const std::string& model) {
  const TokenSetOptions options = token_options(config);
  if (options.tokenizer == TokenizerKind::kByte) return make_byte_tokenizer();
  if (options.tokenizer == TokenizerKind::kBpe && !model.empty())
    return make_bpe_tokenizer(read_file(model), model);
  throw ConfigError(
      text("[recipes] data.tokenizer=", config.get_string("data.tokenizer"),
           ": there is no way from text to tokens; legal: byte, or bpe "
           "with a tokenizer that was learned from a text"));
}

TokenSetOptions token_options(const Config& config) {
  const TokenizerKind kind = parse_tokenizer(config.get_string("data.tokenizer"));
  const int64_t given = config.get_int("data.vocab");
  if (kind == TokenizerKind::kByte && given != 0)
    throw ConfigError(
        text("[recipes] data.vocab=", given,
             " with data.tokenizer=byte; legal: 0, or another tokenizer"));
  const int64_t own = kind == TokenizerKind::kBpe ? kBpeVocabulary : kGpt2Vocabulary;
  return {.dir = config.get_string("data.dir"),
          .tokenizer = kind,
          .vocabulary = given > 0 ? given : own};
}

int64_t vocabulary_size(const Config& config, bool masked) {
  const Vocabulary vocabulary = vocabulary_of(token_options(config));
  return masked ? vocabulary.size_with_mask() : vocabulary.size;
}

std::unique_ptr<DataLoading> load_text(const Config& config, const TextTask& task,
                                       bool reader) {
  if (config.get_bool("data.synthetic"))
    return std::make_unique<SyntheticText>(config, task);
  return std::make_unique<TextLoading>(config, task, reader);
}

void prepare_text(const Config& config, const TextTask& task) {
  const TokenSetOptions options = token_options(config);
  if (config.get_bool("data.synthetic")) return;
  const TokenSets files = prepare_tokens(options);
  open_passages(files, sample_options(config, task));
  const std::string saved = config.get_string("checkpoint.dir");
  if (!files.tokenizer.empty() && !saved.empty())
    save_tokenizer(files.tokenizer, saved);
}

}  // namespace cohort
