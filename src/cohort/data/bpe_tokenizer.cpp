// SPDX-License-Identifier: Apache-2.0
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>

#include "cohort/core/error.h"
#include "cohort/core/parse.h"
#include "cohort/data/tokenizer.h"

namespace cohort {
namespace {

constexpr const char* kMaskPiece = "<mask>";

// The next line, with the line end that it has.
std::string_view take_line(std::string_view& text) {
  const std::string_view line =
      text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
  text.remove_prefix(line.size());
  return line;
}

// What a piece stands for: the pieces behind the first are single bytes.
std::string text_of(std::string piece, int64_t byte) {
  if (byte >= 0 && byte < 256) return {static_cast<char>(byte)};
  constexpr std::string_view kBlank = "\xe2\x96\x81";
  for (size_t at = 0; (at = piece.find(kBlank, at)) != std::string::npos; ++at)
    piece.replace(at, kBlank.size(), " ");
  return piece;
}

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(const std::string& model, const std::string& name) {
    const auto status = processor_.LoadFromSerializedProto(model);
    if (!status.ok())
      throw DataError(text("[data.tokenizer] ", name,
                           ": no model of SentencePiece: ", status.ToString()));
    vocabulary_ = bpe_vocabulary(processor_.GetPieceSize());
    if (processor_.eos_id() != vocabulary_.end_of_text ||
        processor_.PieceToId(kMaskPiece) != vocabulary_.mask ||
        processor_.PieceToId("<0x00>") != vocabulary_.begin)
      throw DataError(text("[data.tokenizer] ", name,
                           ": not as cohort makes models; expected </s> at ",
                           vocabulary_.end_of_text, ", ", kMaskPiece, " at ",
                           vocabulary_.mask, " and bytes from ", vocabulary_.begin));
    for (int id = 0; id < processor_.GetPieceSize(); ++id)
      pieces_.push_back(text_of(processor_.IdToPiece(id), id - vocabulary_.begin));
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }

  // Line by line: what SentencePiece takes in one go costs more than its length.
  void encode(std::string_view text, std::vector<uint16_t>& tokens) const override {
    while (!text.empty()) encode_line(take_line(text), tokens);
  }

  std::string decode(std::span<const int64_t> tokens) const override {
    std::string text;
    for (const int64_t token : tokens)
      if (token >= vocabulary_.begin && token < vocabulary_.end)
        text += pieces_[static_cast<size_t>(token)];
    return text;
  }

 private:
  // SentencePiece changes what is no UTF-8, or has the sign that it writes for a blank.
  // Such a line is encoded byte by byte.
  void encode_line(std::string_view line, std::vector<uint16_t>& tokens) const {
    const std::vector<int> ids = processor_.EncodeAsIds(line);
    if (decode(std::vector<int64_t>(ids.begin(), ids.end())) == line) {
      tokens.insert(tokens.end(), ids.begin(), ids.end());
      return;
    }
    for (const char byte : line)
      tokens.push_back(
          static_cast<uint16_t>(vocabulary_.begin + static_cast<uint8_t>(byte)));
  }

  sentencepiece::SentencePieceProcessor processor_;
  Vocabulary vocabulary_;
  std::vector<std::string> pieces_;  // the text of each token
};

// The lines of a text that have words.
class Sentences final : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(std::string_view text) : rest_(text) { Next(); }
  bool done() const override { return done_; }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

  void Next() override {
    line_.clear();
    while (line_.empty() && !rest_.empty()) line_ = trim(take_line(rest_));
    done_ = line_.empty();
  }

 private:
  std::string_view rest_;
  std::string line_;
  bool done_ = false;
};

// Without the place in SentencePiece's source.
std::string reason(const std::string& status) {
  const size_t end = status.rfind("] ");
  return end == std::string::npos || end + 2 == status.size() ? status
                                                              : status.substr(end + 2);
}

}  // namespace

void require_bpe() {}

std::string train_bpe(std::string_view text, int64_t size) {
  std::string model;
  Sentences sentences(text);
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      std::unordered_map<std::string, std::string>{
          {"model_type", "bpe"},
          {"vocab_size", std::to_string(size)},
          {"normalization_rule_name", "identity"},
          {"remove_extra_whitespaces", "false"},
          {"add_dummy_prefix", "false"},
          {"byte_fallback", "true"},
          {"unk_id", "0"},
          {"bos_id", "-1"},
          {"eos_id", std::to_string(bpe_vocabulary(size).end_of_text)},
          {"control_symbols", kMaskPiece},
          {"num_threads", "1"},
          {"minloglevel", "2"}},
      &sentences, &model);
  if (!status.ok())
    throw DataError(cohort::text("[data.tokenizer] data.vocab=", size,
                                 " for a text of ", text.size(),
                                 " bytes: ", reason(status.ToString())));
  return model;
}

std::unique_ptr<Tokenizer> make_bpe_tokenizer(const std::string& model,
                                              const std::string& name) {
  return std::make_unique<BpeTokenizer>(model, name);
}

}  // namespace cohort
