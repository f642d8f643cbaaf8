// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/data.h"

namespace cohort {

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
