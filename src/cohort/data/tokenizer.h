// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cohort {

// What tokens mean: [0, size). Those of [begin, end) stand for text.
struct Vocabulary {
  int64_t size = 0;
  int64_t begin = 0, end = 0;
  int64_t end_of_text = 0;  // stands behind each document
  int64_t mask = 0;         // of masked language models; may be the one behind the last

  int64_t size_with_mask() const { return std::max(size, mask + 1); }
};

// Text to tokens and back. What encode() makes of a text, decode() turns into the same
// bytes. Thread safety: immutable.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  virtual const Vocabulary& vocabulary() const = 0;
  // Adds the tokens of `text` to `tokens`.
  virtual void encode(std::string_view text, std::vector<uint16_t>& tokens) const = 0;
  // Tokens that stand for no text give none.
  virtual std::string decode(std::span<const int64_t> tokens) const = 0;

 protected:
  Tokenizer() = default;
};

// A token is a byte; 256 ends a text.
Vocabulary byte_vocabulary();
std::unique_ptr<Tokenizer> make_byte_tokenizer();

// Byte pair encoding by SentencePiece. Whatever bytes a text has, nothing of it is
// lost: no normalisation, and what no piece stands for is encoded byte by byte.
Vocabulary bpe_vocabulary(int64_t size);
// Trains a model of that many tokens on the lines of `text`, and returns it as a file
// has it. The same text gives the same model. DataError if the text has too few pieces.
std::string train_bpe(std::string_view text, int64_t size);
// `model`: the bytes of such a file; `name` says where they came from. DataError.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(const std::string& model,
                                              const std::string& name);
// ConfigError where this build has no SentencePiece.
void require_bpe();

}  // namespace cohort
