// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/token_dataset.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cohort/core/error.h"

namespace cohort {
namespace {

class TokenDataset final : public Dataset {
 public:
  TokenDataset(std::unique_ptr<TokenPassages> passages,
               const TokenDatasetOptions& options)
      : passages_(std::move(passages)), options_(options) {
    COHORT_CHECK(options.length > 0, options.length, " tokens");
    if (options.pack) fields_.push_back("segments");
  }

  int64_t size() const override { return passages_->count(); }
  std::span<const std::string> fields() const override { return fields_; }

  Batch gather(std::span<const int64_t> ids,
               std::span<const std::string> fields) const override {
    Batch batch = empty_batch(*this, ids, fields);
    for (auto& [name, tensor] : batch.fields)
      tensor = at::empty({batch.count, options_.length}, at::kLong);
    std::vector<int64_t> passage(static_cast<size_t>(passage_length(options_)));
    for (int64_t row = 0; row < batch.count; ++row) {
      passages_->read(ids[static_cast<size_t>(row)], passage);
      for (auto& [name, tensor] : batch.fields)
        fill(name, passage, tensor.mutable_data_ptr<int64_t>() + row * options_.length);
    }
    return batch;
  }

  std::string describe() const override {
    return text(passages_->describe(), ", ", size(), " samples of ", options_.length,
                options_.pack ? ", packed" : "");
  }

 private:
  void fill(const std::string& field, std::span<const int64_t> passage,
            int64_t* out) const {
    const auto length = static_cast<size_t>(options_.length);
    if (field == "segments") return fill_segments(passage.first(length), out);
    const bool shifted = field == "target" && options_.next;
    std::ranges::copy(passage.subspan(shifted ? 1 : 0, length), out);
    if (!shifted || !options_.pack) return;
    for (size_t i = 0; i < length; ++i)
      if (passage[i] == options_.end_of_text) out[i] = kIgnoredTarget;
  }

  void fill_segments(std::span<const int64_t> tokens, int64_t* out) const {
    int64_t segment = 0;
    for (const int64_t token : tokens) {
      *out++ = segment;
      segment += token == options_.end_of_text ? 1 : 0;
    }
  }

  std::unique_ptr<TokenPassages> passages_;
  TokenDatasetOptions options_;
  std::vector<std::string> fields_{"tokens", "target"};
};

}  // namespace

std::unique_ptr<Dataset> make_token_dataset(std::unique_ptr<TokenPassages> passages,
                                            const TokenDatasetOptions& options) {
  return std::make_unique<TokenDataset>(std::move(passages), options);
}

int64_t passage_length(const TokenDatasetOptions& options) {
  return options.length + (options.next ? 1 : 0);
}

}  // namespace cohort
