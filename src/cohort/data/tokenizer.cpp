// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/tokenizer.h"

namespace cohort {
namespace {

constexpr int64_t kByteValues = 256;

class ByteTokenizer final : public Tokenizer {
 public:
  const Vocabulary& vocabulary() const override { return vocabulary_; }

  void encode(std::string_view text, std::vector<uint16_t>& tokens) const override {
    tokens.reserve(tokens.size() + text.size());
    for (const char byte : text) tokens.push_back(static_cast<uint8_t>(byte));
  }

  std::string decode(std::span<const int64_t> tokens) const override {
    std::string text;
    for (const int64_t token : tokens)
      if (token >= 0 && token < kByteValues) text += static_cast<char>(token);
    return text;
  }

 private:
  const Vocabulary vocabulary_ = byte_vocabulary();
};

}  // namespace

Vocabulary byte_vocabulary() {
  return {.size = kByteValues + 1,
          .end = kByteValues,
          .end_of_text = kByteValues,
          .mask = kByteValues + 1};
}

// The first pieces of a model are: unknown, which byte pieces make superfluous; end of
// text; mask.
Vocabulary bpe_vocabulary(int64_t size) {
  return {.size = size, .begin = 3, .end = size, .end_of_text = 1, .mask = 2};
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

}  // namespace cohort
