// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/masked_tokens.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/random.h"
#include "cohort/data/token_dataset.h"

namespace cohort {
namespace {

using Row = std::span<int64_t>;

Row row_of(Tensor& field, size_t row) {
  const auto length = static_cast<size_t>(field.size(1));
  return {field.mutable_data_ptr<int64_t>() + row * length, length};
}

// The places with the least random words: always as many.
std::vector<bool> chosen_places(const RandomKey& key, size_t length, double share) {
  std::vector<uint32_t> words(length);
  random_bits(key, 0, words);
  std::vector<size_t> order(length);
  for (size_t i = 0; i < length; ++i) order[i] = i;
  const auto count =
      static_cast<int64_t>(std::llround(share * static_cast<double>(length)));
  std::nth_element(order.begin(), order.begin() + count, order.end(),
                   [&](size_t a, size_t b) {
                     return std::pair(words[a], a) < std::pair(words[b], b);
                   });
  std::vector<bool> chosen(length);
  for (int64_t i = 0; i < count; ++i) chosen[order[static_cast<size_t>(i)]] = true;
  return chosen;
}

int64_t shown_instead(const RandomKey& key, size_t place, int64_t token,
                      const Vocabulary& vocabulary) {
  const uint64_t tenth = random_below(key, 2 * place, 10);
  if (tenth < 8) return vocabulary.mask;
  if (tenth == 9) return token;
  const auto others = static_cast<uint64_t>(vocabulary.end - vocabulary.begin);
  return vocabulary.begin +
         static_cast<int64_t>(random_below(key, 2 * place + 1, others));
}

void mask_row(const MaskOptions& options, int64_t epoch, int64_t sample, bool is_target,
              Row row) {
  const auto places = RandomKey::of_sample(options.seed, epoch, sample, "mask.places");
  const auto words = RandomKey::of_sample(options.seed, epoch, sample, "mask.words");
  const auto chosen = chosen_places(places, row.size(), options.share);
  for (size_t i = 0; i < row.size(); ++i) {
    if (is_target && !chosen[i]) row[i] = kIgnoredTarget;
    if (!is_target && chosen[i])
      row[i] = shown_instead(words, i, row[i], options.vocabulary);
  }
}

void mask_batch(const MaskOptions& options, Batch& batch, int64_t epoch) {
  for (auto& [name, field] : batch.fields) {
    if (name != "tokens" && name != "target") continue;
    COHORT_CHECK(field.dim() == 2 && field.size(0) == std::ssize(batch.ids),
                 batch.ids.size(), " ids of ", field.sizes());
    for (size_t row = 0; row < batch.ids.size(); ++row)
      mask_row(options, epoch, batch.ids[row], name == "target", row_of(field, row));
  }
}

class MaskedDataset final : public Dataset {
 public:
  MaskedDataset(std::unique_ptr<Dataset> text, const MaskOptions& options)
      : text_(std::move(text)), options_(options) {}

  int64_t size() const override { return text_->size(); }
  std::span<const std::string> fields() const override { return text_->fields(); }
  std::string describe() const override { return text_->describe() + ", masked"; }

  Batch gather(std::span<const int64_t> ids,
               std::span<const std::string> fields) const override {
    Batch batch = text_->gather(ids, fields);
    mask_batch(options_, batch, 0);
    return batch;
  }

 private:
  std::unique_ptr<Dataset> text_;
  MaskOptions options_;
};

}  // namespace

Augment mask_tokens(const MaskOptions& options) {
  return [options](Batch& batch, int64_t epoch) { mask_batch(options, batch, epoch); };
}

std::unique_ptr<Dataset> make_masked_dataset(std::unique_ptr<Dataset> text,
                                             const MaskOptions& options) {
  return std::make_unique<MaskedDataset>(std::move(text), options);
}

}  // namespace cohort
