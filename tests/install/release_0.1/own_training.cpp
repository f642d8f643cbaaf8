// SPDX-License-Identifier: Apache-2.0
// A recipe in a program of one's own, with an update rule, a learning rate and a metric
// of its own: its step foretold and compared with one rank's, then trained. Which
// polynomial goes through these points?
//   cohort launch -n 2 -- build/release/bin/own_training
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <cohort/cohort.h>

#include <cstdio>

namespace {

using cohort::Batch, cohort::Config, cohort::Tensor, cohort::Values;

class Points final : public cohort::Dataset {
 public:
  int64_t size() const override { return 512; }
  std::span<const std::string> fields() const override { return fields_; }
  Batch gather(std::span<const int64_t> ids,
               std::span<const std::string> fields) const override {
    const Tensor at = at::tensor(ids, at::kFloat).div(256).sub(1);
    Batch batch = cohort::empty_batch(*this, ids, fields);
    for (const auto& field : fields)
      batch.at(field) = field == "input"
                            ? at::stack({at, at.pow(2), at.pow(3)}, 1)
                            : at.mul(0.5).sub(at.pow(3).mul(2)).add(0.25).unsqueeze(1);
    return batch;
  }
  std::string describe() const override { return "512 points of a polynomial"; }

 private:
  std::vector<std::string> fields_ = {"input", "target"};
};

// Weights move against their gradient, and by nothing else.
class Descent final : public cohort::ElementwiseRule {
 public:
  std::string_view name() const override { return "descent"; }
  std::span<const cohort::StateSpec> states() const override { return {}; }
  void apply(const cohort::UpdateStretch<float>& stretch,
             const cohort::ParameterTraits&, std::span<const double>,
             const cohort::StepScalars& scalars) const override {
    move(stretch, scalars);
  }
  void apply(const cohort::UpdateStretch<double>& stretch,
             const cohort::ParameterTraits&, std::span<const double>,
             const cohort::StepScalars& scalars) const override {
    move(stretch, scalars);
  }

 private:
  template <typename Real>
  static void move(const cohort::UpdateStretch<Real>& stretch,
                   const cohort::StepScalars& scalars) {
    const auto by = static_cast<Real>(scalars.rate * scalars.grad_scale);
    for (int64_t i = 0; i < stretch.count; ++i)
      stretch.parameter[i] -= by * stretch.gradient[i];
  }
};

cohort::WeightedLoss squares(const Values& outputs, const Values& fields) {
  const Tensor apart = outputs[0] - fields[0];
  cohort::WeightedLoss loss{.sum = apart.square().sum(),
                            .count = static_cast<double>(apart.size(0))};
  if (!c10::GradMode::is_enabled()) loss.named = {apart.abs().sum().item<double>()};
  return loss;
}

class Polynomial final : public cohort::Recipe {
 public:
  std::string_view name() const override { return "polynomial"; }
  std::string_view help() const override { return "a polynomial through points"; }
  Config defaults() const override {
    Config config(cohort::common_keys());
    for (const char* assignment : {"epochs=40", "batch=64"})
      config.set_assignment(assignment);
    return config;
  }
  cohort::Chain make_chain(const Config& config,
                           const cohort::TensorPart& part) const override {
    cohort::require_whole_layers(*this, part);
    cohort::TensorLists tensors;
    const cohort::Linear linear(
        tensors, "line", 3, 1, {.seed = static_cast<uint64_t>(config.get_int("seed"))});
    cohort::Chain chain;
    chain.blocks.push_back(std::make_unique<cohort::FunctionBlock>(
        "line", std::move(tensors),
        [linear](const Tensor& x, cohort::Context& context) {
          return linear(x, context);
        },
        cohort::fields_of_layer(0)));
    chain.loss = {
        .function = squares, .fields = {"target"}, .metrics = {.named = {"distance"}}};
    return chain;
  }
  std::unique_ptr<cohort::DataLoading> load(const Config&, bool) const override {
    return cohort::data_at_hand(
        {.train = std::make_unique<Points>(), .valid = std::make_unique<Points>()});
  }
  std::unique_ptr<cohort::UpdateRule> make_rule(const Config&) const override {
    return std::make_unique<Descent>();
  }
  cohort::RateFunction make_rate(const Config&) const override {
    return [](int64_t step, int64_t total) {
      return 0.5 * (1 - 0.5 * static_cast<double>(step) / static_cast<double>(total));
    };
  }
};

}  // namespace

int main() try {
  const Polynomial recipe;
  const Config config = recipe.defaults();
  const auto four = cohort::foretell_step(recipe, config, {.ranks = 4});
  const auto same = cohort::verify_step(recipe, config, {.ranks = 4});
  cohort::TrainOptions options;
  options.on_validation = [](const cohort::Validation& valid) {
    if (valid.epoch % 10 == 0)
      std::printf("epoch %ld: %s %.4f\n", valid.epoch, valid.named[0].first.c_str(),
                  valid.named[0].second);
  };
  const auto result = cohort::train(recipe, config, options);
  std::printf("4 ranks: %ld actions, %s; trained %ld steps to a loss of %.4f\n",
              four.actions, same.is_equal ? "as on one" : same.deviation.c_str(),
              result.steps, result.loss.value_or(0));
} catch (const std::exception& error) {
  std::fprintf(stderr, "own_training: %s\n", error.what());
  return 1;
}
