// SPDX-License-Identifier: Apache-2.0
#include "recipes/fashion_mnist_recipes.h"

#include "cohort/config.h"
#include "cohort/core/error.h"
#include "cohort/data/fashion_mnist.h"
#include "cohort/nn/models.h"
#include "recipes/image_data.h"

namespace cohort {
namespace {

constexpr double kDropout = 0.2;

uint64_t seed_of(const Config& config) {
  return static_cast<uint64_t>(config.get_int("seed"));
}

}  // namespace

std::unique_ptr<DataLoading> FashionMnistRecipe::load(const Config& config,
                                                      bool reader) const {
  if (config.get_bool("data.synthetic"))
    return load_synthetic(
        {.size = 60'000, .shape = {1, 28, 28}, .seed = seed_of(config)});
  const FashionMnistOptions options{.dir = config.get_string("data.dir"),
                                    .normalize = config.get_bool("data.normalize")};
  return load_images(fashion_mnist(options, Split::kTrain),
                     fashion_mnist(options, Split::kTest), reader);
}

Config FashionMnistRecipe::defaults_of_width(std::string_view width) const {
  Config config(common_keys());
  const auto set = [&](std::string_view key, std::string_view value) {
    config.set(key, value, text("recipe ", name()));
  };
  set("epochs", "10");
  set("batch", "128");
  set("model.width", width);
  set("optim.lr", "0.05");
  set("optim.momentum", "0.9");
  set("data.dir", FashionMnistOptions{}.dir);
  return config;
}

std::string_view CnnRecipe::help() const {
  return "a CNN of two convolutions on Fashion-MNIST (28 x 28 images, 10 classes)";
}

Chain CnnRecipe::make_chain(const Config& config, const TensorPart& part) const {
  require_whole_layers(*this, part);
  return make_cnn({.classes = 10, .width = given_or(config, "model.width", 32)},
                  {.seed = seed_of(config)});
}

std::string_view MlpRecipe::help() const {
  return "linear layers with dropout on Fashion-MNIST (28 x 28 images, 10 classes)";
}

Config MlpRecipe::defaults() const {
  Config config = defaults_of_width("512");
  config.set("model.depth", "2", "recipe mlp");
  return config;
}

Chain MlpRecipe::make_chain(const Config& config, const TensorPart& part) const {
  require_whole_layers(*this, part);
  const double dropout = config.get_float("model.dropout");
  return make_mlp({.inputs = 28 * 28,
                   .width = given_or(config, "model.width", 512),
                   .depth = given_or(config, "model.depth", 2),
                   .classes = 10,
                   .dropout = dropout < 0 ? kDropout : dropout},
                  {.seed = seed_of(config)});
}

}  // namespace cohort
