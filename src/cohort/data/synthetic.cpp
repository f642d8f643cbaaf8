// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/synthetic.h"

#include <ATen/ATen.h>

#include <utility>

#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/core/random.h"
#include "cohort/data/labelled_dataset.h"

namespace cohort {
namespace {

void require_count(const char* what, int64_t value) {
  if (value < 1) {
    throw ConfigError(
        text("[data.synthetic] ", what, " is ", value, "; legal: 1 or more"));
  }
}

class Synthetic final : public LabelledDataset {
 public:
  explicit Synthetic(SyntheticOptions options) : options_(std::move(options)) {
    require_count("size", options_.size);
    require_count("classes", options_.classes);
    for (const int64_t n : options_.shape) {
      require_count("a dimension of shape", n);
      elements_ *= n;
    }
    patterns_ = at::empty({options_.classes, elements_}, at::kFloat);
    fill_uniform(patterns_, RandomKey::of_path(options_.seed, "synthetic.pattern"), -1,
                 1);
  }

  int64_t size() const override { return options_.size; }

  std::string describe() const override {
    return text("synthetic: ", size(), " samples ", format_shape(options_.shape), ", ",
                options_.classes, " classes");
  }

 private:
  Tensor inputs(std::span<const int64_t> ids) const override {
    std::vector<int64_t> shape{static_cast<int64_t>(ids.size())};
    shape.insert(shape.end(), options_.shape.begin(), options_.shape.end());
    Tensor all = at::empty({shape[0], elements_}, at::kFloat);
    for (int64_t row = 0; row < shape[0]; ++row) {
      Tensor sample = all.select(0, row);
      fill(ids[row], sample);
    }
    return all.view(shape);
  }

  int64_t label(int64_t id) const override {
    const auto key = RandomKey::of_path(options_.seed, "synthetic.label");
    return static_cast<int64_t>(
        random_below(key, id, static_cast<uint64_t>(options_.classes)));
  }

  // Makes the sample in `out`.
  void fill(int64_t id, Tensor& out) const {
    const auto noise = RandomKey::of_path(options_.seed, "synthetic.noise", id);
    fill_uniform(out, noise, -1, 1);
    const float* pattern = patterns_.const_data_ptr<float>() + label(id) * elements_;
    float* values = out.mutable_data_ptr<float>();
    for (int64_t i = 0; i < elements_; ++i) values[i] += pattern[i];
  }

  SyntheticOptions options_;
  int64_t elements_ = 1;
  Tensor patterns_;
};

}  // namespace

std::unique_ptr<Dataset> make_synthetic(const SyntheticOptions& options) {
  return std::make_unique<Synthetic>(options);
}

}  // namespace cohort
