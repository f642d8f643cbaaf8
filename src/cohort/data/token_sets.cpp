// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/token_sets.h"

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/hash.h"
#include "cohort/core/record.h"
#include "cohort/core/user_cache.h"
#include "cohort/data/text_files.h"
#include "cohort/data/token_file.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

// What lies in the cache has another one where other tokens are made of the same text.
constexpr int64_t kTokensVersion = 1;

[[noreturn]] void fail_sets(const std::string& what) {
  throw DataError("[data.tokens] " + what);
}

fs::path text_cache() {
  const fs::path cache = user_cache("text");
  if (cache.empty())
    fail_sets(
        "no folder to keep tokens in; legal: set COHORT_CACHE, XDG_CACHE_HOME or HOME");
  return cache;
}

TokenStretch whole(const fs::path& path, int64_t vocabulary) {
  const TokenFile file(path.string());
  file.require_below(vocabulary);
  return {path.string(), 0, static_cast<int64_t>(file.tokens().size())};
}

bool is_token_file(const fs::path& path, std::string_view split) {
  const std::string name = path.filename().string();
  return path.extension() == ".bin" && name.find(split) != std::string::npos;
}

std::vector<TokenStretch> token_files(const fs::path& folder, std::string_view split,
                                      int64_t vocabulary) {
  std::vector<fs::path> paths;
  std::error_code trouble;
  for (fs::directory_iterator at(folder, trouble), end; !trouble && at != end;
       at.increment(trouble))
    if (is_token_file(at->path(), split)) paths.push_back(at->path());
  if (trouble) fail_sets(text(folder.string(), ": ", trouble.message()));
  std::ranges::sort(paths);
  std::vector<TokenStretch> found;
  for (const auto& path : paths) found.push_back(whole(path, vocabulary));
  return found;
}

// The last tenth of the last file, where no other is for validation.
void split_off_valid(TokenSets& sets) {
  TokenStretch& last = sets.train.back();
  const int64_t border = last.end - (last.end - last.begin) / 10;
  sets.valid = {{last.path, border, last.end}};
  last.end = border;
}

TokenSets ready_tokens(const TokenSetOptions& options) {
  if (options.dir.empty())
    fail_sets(
        "data.tokenizer=none reads files of tokens, and data.dir is not set; legal: a "
        "folder with train.bin and val.bin as nanoGPT or llm.c write them, or one "
        "such file");
  TokenSets sets{.name = options.dir, .tokenizer = ""};
  std::error_code ignored;
  const fs::path path = fs::absolute(options.dir).lexically_normal();
  if (!fs::is_directory(path, ignored)) {
    sets.train = {whole(path, options.vocabulary)};
  } else {
    sets.train = token_files(path, "train", options.vocabulary);
    sets.valid = token_files(path, "val", options.vocabulary);
  }
  if (sets.train.empty())
    fail_sets(text("data.dir=", options.dir,
                   ": no tokens there; expected train.bin and "
                   "val.bin, or other *.bin files with train and val in their names"));
  if (sets.valid.empty()) split_off_valid(sets);
  return sets;
}

std::string train_part(const TextFiles& files) {
  std::string all;
  for_each_document(files, [&](const TextParts& parts) { all += parts.train; });
  return all;
}

// The model in `folder`, which is made there if it is not yet.
std::unique_ptr<Tokenizer> tokenizer_in(const fs::path& folder, const TextFiles& files,
                                        const TokenSetOptions& options) {
  if (options.tokenizer == TokenizerKind::kByte) return make_byte_tokenizer();
  const std::string model = train_bpe(train_part(files), options.vocabulary);
  write_file_atomically(folder / "tokenizer.model", model);
  return make_bpe_tokenizer(model, (folder / "tokenizer.model").string());
}

void write_tokens(const fs::path& folder, const TextFiles& files,
                  const TokenSetOptions& options) {
  const auto tokenizer = tokenizer_in(folder, files, options);
  const auto end = static_cast<uint16_t>(tokenizer->vocabulary().end_of_text);
  std::vector<uint16_t> train, valid;
  for_each_document(files, [&](const TextParts& parts) {
    tokenizer->encode(parts.train, train);
    tokenizer->encode(parts.valid, valid);
    (parts.valid.empty() ? train : valid).push_back(end);
  });
  // A process that finds the last one finds all.
  write_token_file(folder / "val.bin", valid);
  write_token_file(folder / "train.bin", train);
}

TokenSets tokens_of_text(const TokenSetOptions& options) {
  if (options.tokenizer == TokenizerKind::kBpe) require_bpe();
  const fs::path cache = text_cache();
  const TextFiles files =
      options.dir.empty() ? bible_text(cache) : find_text(options.dir);
  const bool bpe = options.tokenizer == TokenizerKind::kBpe;
  const int64_t size = vocabulary_of(options).size;
  Hasher key;
  key.add(kTokensVersion).add(static_cast<int64_t>(files.fingerprint()));
  key.add(bpe ? "bpe" : "byte").add(size);
  const fs::path folder = cache / hex16(key.digest());
  std::error_code ignored;
  if (!fs::exists(folder / "train.bin", ignored)) {
    make_folder(folder);
    write_tokens(folder, files, options);
  }
  return {.name = files.name,
          .tokenizer = bpe ? (folder / "tokenizer.model").string() : "",
          .train = {whole(folder / "train.bin", size)},
          .valid = {whole(folder / "val.bin", size)}};
}

}  // namespace

TokenizerKind parse_tokenizer(const std::string& name) {
  if (name == "byte") return TokenizerKind::kByte;
  if (name == "bpe") return TokenizerKind::kBpe;
  if (name == "none") return TokenizerKind::kNone;
  throw ConfigError(text("[data] data.tokenizer=", name, "; legal: byte, bpe or none"));
}

auto record_fields(Alike<TokenStretch> auto& stretch) {
  return std::tie(stretch.path, stretch.begin, stretch.end);
}

auto record_fields(Alike<TokenSets> auto& sets) {
  return std::tie(sets.name, sets.tokenizer, sets.train, sets.valid);
}

std::string encode(const TokenSets& sets) { return to_record(sets); }

TokenSets decode_token_sets(const std::string& record) {
  constexpr const char* kNoSets = "[data.tokens] the rank that reads tells no tokens";
  auto sets = read_record<TokenSets>(record, ErrorKind::kComm, kNoSets);
  for (const auto* part : {&sets.train, &sets.valid})
    for (const auto& [path, begin, end] : *part)
      if (path.empty() || begin < 0 || end < begin)
        throw CommError(text(kNoSets, ": [", begin, ", ", end, ") of '", path, "'"));
  return sets;
}

Vocabulary vocabulary_of(const TokenSetOptions& options) {
  const int64_t size = options.vocabulary;
  switch (options.tokenizer) {
    case TokenizerKind::kByte:
      return byte_vocabulary();
    case TokenizerKind::kBpe:
      return bpe_vocabulary(size);
    case TokenizerKind::kNone:
      break;
  }
  // As GPT-2 has it, the last token ends a text.
  return {.size = size, .end = size - 1, .end_of_text = size - 1, .mask = size};
}

TokenSets prepare_tokens(const TokenSetOptions& options) {
  return options.tokenizer == TokenizerKind::kNone ? ready_tokens(options)
                                                   : tokens_of_text(options);
}

}  // namespace cohort
