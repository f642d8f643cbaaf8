// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/error.h"
#include "cohort/data/tokenizer.h"

namespace cohort {

void require_bpe() {
  throw ConfigError(
      "[data.tokenizer] data.tokenizer=bpe: no SentencePiece in this build; legal "
      "here: "
      "byte, none; a build with Debian's libsentencepiece-dev has it");
}

std::string train_bpe(std::string_view, int64_t) {
  require_bpe();
  return "";
}

std::unique_ptr<Tokenizer> make_bpe_tokenizer(const std::string&, const std::string&) {
  require_bpe();
  return nullptr;
}

}  // namespace cohort
