// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/synthetic.h"

#include <ATen/ATen.h>

#include <utility>

#include "cohort/core/error.h"
#include "cohort/core/random.h"

namespace cohort {
namespace {

void require_count(const char* what, int64_t value) {
  if (value < 1) {
    throw ConfigError(
        text("[data.synthetic] ", what, " is ", value, "; legal: 1 or more"));
  }
}

class Synthetic final : public Dataset {
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

  Batch gather(std::span<const int64_t> ids) const override {
    const auto rows = static_cast<int64_t>(ids.size());
    auto input = at::empty({rows, elements_}, at::kFloat);
    auto target = at::empty({rows}, at::kLong);
    auto* labels = target.mutable_data_ptr<int64_t>();
    for (int64_t row = 0; row < rows; ++row) {
      COHORT_CHECK(ids[row] >= 0 && ids[row] < size(), "sample ", ids[row], " of ",
                   size());
      auto sample = input.select(0, row);
      labels[row] = fill(ids[row], sample);
    }
    std::vector<int64_t> shape{rows};
    shape.insert(shape.end(), options_.shape.begin(), options_.shape.end());
    return {input.view(shape), target};
  }

  std::string describe() const override {
    std::string shape;
    for (const int64_t n : options_.shape) {
      if (!shape.empty()) shape += 'x';
      shape += std::to_string(n);
    }
    return text("synthetic: ", size(), " samples ", shape, ", ", options_.classes,
                " classes");
  }

 private:
  // Makes the sample in `out` and returns its class.
  int64_t fill(int64_t id, Tensor& out) const {
    const auto labels = RandomKey::of_path(options_.seed, "synthetic.label");
    const auto label = static_cast<int64_t>(
        random_below(labels, id, static_cast<uint64_t>(options_.classes)));
    const auto noise = RandomKey::of_path(options_.seed, "synthetic.noise", id);
    fill_uniform(out, noise, -1, 1);
    const float* pattern = patterns_.const_data_ptr<float>() + label * elements_;
    float* values = out.mutable_data_ptr<float>();
    for (int64_t i = 0; i < elements_; ++i) values[i] += pattern[i];
    return label;
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
