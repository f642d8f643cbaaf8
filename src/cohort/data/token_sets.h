// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/data/tokenizer.h"

namespace cohort {

enum class TokenizerKind { kByte, kBpe, kNone };

// byte, bpe or none. ConfigError.
TokenizerKind parse_tokenizer(const std::string& name);

// Where tokens come from.
struct TokenSetOptions {
  // A folder or a file of text; empty: the King James Bible. With kNone a folder of
  // token files, those for training with "train" in their names and those for
  // validation with "val", or one file.
  std::string dir;
  TokenizerKind tokenizer = TokenizerKind::kByte;
  int64_t vocabulary = 0;  // tokens; kByte has its own
};

// Tokens [begin, end) of a file.
struct TokenStretch {
  std::string path;
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const TokenStretch&) const = default;
};

// The tokens of a run, in files that every rank of the node can map.
struct TokenSets {
  std::string name;       // for people
  std::string tokenizer;  // SentencePiece's model; empty: there is none
  std::vector<TokenStretch> train, valid;

  bool operator==(const TokenSets&) const = default;
};

// For peers, as a record (core/record.h). CommError for bytes that are none, or tell of
// stretches that no file has.
std::string encode(const TokenSets& sets);
TokenSets decode_token_sets(const std::string& record);

// What tokens mean there: known before there are any.
Vocabulary vocabulary_of(const TokenSetOptions& options);

// Turns text into tokens, once: they are kept in the user's cache (core/user_cache.h)
// under a name that depends on the files, the tokenizer and the vocabulary. Whoever
// asks again finds them there. Checks that all tokens are of the vocabulary.
//
// Failure: DataError that names the file, what it has and what is legal; ConfigError
// for options that do not go together. Two at once do the same work and do not disturb
// each other. Uses no tensors, so that a process may fork after it.
TokenSets prepare_tokens(const TokenSetOptions& options);

}  // namespace cohort
