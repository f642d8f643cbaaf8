// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/token_passages.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/random.h"
#include "cohort/data/token_file.h"

namespace cohort {
namespace {

class MappedPassages final : public TokenPassages {
 public:
  MappedPassages(std::string name, std::span<const TokenStretch> stretches,
                 const PassageOptions& options)
      : name_(std::move(name)), options_(options) {
    COHORT_CHECK(options.length > 0 && options.stride > 0, options.length,
                 " tokens, stride ", options.stride);
    for (const auto& stretch : stretches) add(stretch);
    if (passages_ == 0)
      throw DataError(text("[data.tokens] ", name_, ": ", tokens_,
                           " tokens; a sample needs ", options.length,
                           " (model.context)"));
  }

  int64_t count() const override { return passages_; }

  void read(int64_t passage, std::span<int64_t> tokens) const override {
    const auto part = std::ranges::upper_bound(parts_, passage, {}, &Part::first) - 1;
    const auto from = part->tokens.subspan(
        static_cast<size_t>((passage - part->first) * options_.stride), tokens.size());
    std::ranges::copy(from, tokens.begin());
  }

  std::string describe() const override {
    return text(name_, ": ", tokens_, " tokens");
  }

 private:
  struct Part {
    int64_t first;  // passage
    std::span<const uint16_t> tokens;
  };

  void add(const TokenStretch& stretch) {
    files_.emplace_back(stretch.path);
    const auto all = files_.back().tokens();
    const int64_t count = stretch.end - stretch.begin;
    COHORT_CHECK(stretch.begin >= 0 && stretch.end <= static_cast<int64_t>(all.size()),
                 stretch.path, ": tokens up to ", stretch.end, " of ", all.size());
    tokens_ += count;
    if (count < options_.length) return;
    parts_.push_back({passages_, all.subspan(static_cast<size_t>(stretch.begin),
                                             static_cast<size_t>(count))});
    passages_ += (count - options_.length) / options_.stride + 1;
  }

  std::string name_;
  PassageOptions options_;
  std::vector<TokenFile> files_;
  std::vector<Part> parts_;
  int64_t passages_ = 0, tokens_ = 0;
};

class SyntheticPassages final : public TokenPassages {
 public:
  explicit SyntheticPassages(const SyntheticTokenOptions& options) : options_(options) {
    COHORT_CHECK(options.passages > 0 && options.vocabulary > 0, options.passages,
                 " passages of ", options.vocabulary, " tokens");
  }

  int64_t count() const override { return options_.passages; }

  void read(int64_t passage, std::span<int64_t> tokens) const override {
    const auto key = RandomKey::of_path(options_.seed, "synthetic.tokens", passage);
    const auto size = static_cast<uint64_t>(options_.vocabulary);
    uint64_t last = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool follows = i > 0 && random_below(key, 2 * i, 4) > 0;
      last = follows ? (5 * last + 3) % size : random_below(key, 2 * i + 1, size);
      tokens[i] = static_cast<int64_t>(last);
    }
  }

  std::string describe() const override {
    return text("synthetic: ", options_.passages * options_.length, " tokens");
  }

 private:
  SyntheticTokenOptions options_;
};

}  // namespace

std::unique_ptr<TokenPassages> map_passages(const std::string& name,
                                            std::span<const TokenStretch> stretches,
                                            const PassageOptions& options) {
  return std::make_unique<MappedPassages>(name, stretches, options);
}

std::unique_ptr<TokenPassages> synthetic_passages(
    const SyntheticTokenOptions& options) {
  return std::make_unique<SyntheticPassages>(options);
}

}  // namespace cohort
