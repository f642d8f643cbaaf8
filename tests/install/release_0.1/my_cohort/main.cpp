// SPDX-License-Identifier: Apache-2.0
// `cohort` with a recipe of one's own: which of two spirals is a point on?
//   my_cohort train spirals -n 2
//   my_cohort step spirals -n 4 --layout pp=2,dp=2 --svg step.svg
//   my_cohort verify spirals -n 4 --layout shard=3
//   my_cohort bench train spirals -n 2
#include <ATen/ATen.h>
#include <cohort/program.h>

#include <cmath>

namespace {

using cohort::Batch, cohort::Config, cohort::Context, cohort::Tensor;

// Sample i is the same on every rank and in every run.
class Spirals final : public cohort::Dataset {
 public:
  Spirals(int64_t size, double turns) : size_(size), turns_(turns) {}
  int64_t size() const override { return size_; }
  std::span<const std::string> fields() const override { return fields_; }
  Batch gather(std::span<const int64_t> ids,
               std::span<const std::string> fields) const override {
    const auto count = static_cast<int64_t>(ids.size());
    const Tensor points = at::empty({count, 2});
    const Tensor labels = at::empty({count}, at::kLong);
    for (int64_t i = 0; i < count; ++i) {
      const double radius = static_cast<double>(ids[i]) / static_cast<double>(size_);
      const int64_t label = ids[i] % 2;
      const double angle = M_PI * (2 * turns_ * radius + static_cast<double>(label));
      points.data_ptr<float>()[2 * i] = static_cast<float>(radius * std::cos(angle));
      points.data_ptr<float>()[2 * i + 1] =
          static_cast<float>(radius * std::sin(angle));
      labels.data_ptr<int64_t>()[i] = label;
    }
    Batch batch = cohort::empty_batch(*this, ids, fields);
    for (const auto& field : fields)
      batch.at(field) = field == "input" ? points : labels;
    return batch;
  }
  std::string describe() const override {
    return "spirals: " + std::to_string(size_) + " points, 2 classes";
  }

 private:
  int64_t size_;
  double turns_;
  std::vector<std::string> fields_ = {"input", "target"};
};

std::unique_ptr<cohort::Block> layer(int place, int64_t in, int64_t out, bool last,
                                     uint64_t seed) {
  const std::string name = "layer" + std::to_string(place);
  cohort::TensorLists tensors;
  const cohort::Linear linear(tensors, name, in, out, {.seed = seed});
  return std::make_unique<cohort::FunctionBlock>(
      name, std::move(tensors),
      [linear, last](const Tensor& x, Context& context) {
        const Tensor y = linear(x, context);
        return last ? y : y.tanh();
      },
      cohort::fields_of_layer(place));
}

class SpiralsRecipe final : public cohort::Recipe {
 public:
  std::string_view name() const override { return "spirals"; }
  std::string_view help() const override {
    return "which of two spirals is a point on?";
  }
  Config defaults() const override {
    auto keys = cohort::common_keys();
    keys.add_float("data.turns", 1.5, "How often each spiral goes round",
                   {.lowest = 0});
    Config config(std::move(keys));
    for (const auto& [key, value] : {std::pair{"epochs", "60"},
                                     {"batch", "64"},
                                     {"model.width", "48"},
                                     {"model.depth", "3"},
                                     {"optim.name", "adamw"},
                                     {"optim.lr", "0.005"}})
      config.set(key, value, "recipe spirals");
    return config;
  }
  cohort::Chain make_chain(const Config& config,
                           const cohort::TensorPart& part) const override {
    cohort::require_whole_layers(*this, part);
    const auto seed = static_cast<uint64_t>(config.get_int("seed"));
    const int64_t width = cohort::given_or(config, "model.width", 48);
    const int64_t depth = cohort::given_or(config, "model.depth", 3);
    cohort::Chain chain{.blocks = {}, .loss = cohort::classifier_loss()};
    for (int i = 0; i < depth; ++i)
      chain.blocks.push_back(layer(i, i == 0 ? 2 : width, width, false, seed));
    chain.blocks.push_back(layer(static_cast<int>(depth), width, 2, true, seed));
    return chain;
  }
  std::unique_ptr<cohort::DataLoading> load(const Config& config, bool) const override {
    const double turns = config.get_float("data.turns");
    return cohort::data_at_hand({.train = std::make_unique<Spirals>(2000, turns),
                                 .valid = std::make_unique<Spirals>(500, turns)});
  }
};

}  // namespace

int main(int argc, char** argv) {
  return cohort::run_program(argc, argv, {std::make_shared<SpiralsRecipe>()});
}
