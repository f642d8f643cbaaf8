// SPDX-License-Identifier: Apache-2.0
#include "recipes/mlp_recipe.h"

#include "cohort/config.h"
#include "cohort/data/fashion_mnist.h"
#include "cohort/nn/models.h"
#include "recipes/fashion_mnist_recipe.h"

namespace cohort {
namespace {

constexpr double kDropout = 0.2;

}  // namespace

std::string_view MlpRecipe::help() const {
  return "linear layers with dropout on Fashion-MNIST (28 x 28 images, 10 classes)";
}

Config MlpRecipe::defaults() const {
  Config config(common_keys());
  const auto set = [&](std::string_view key, std::string_view value) {
    config.set(key, value, "recipe mlp");
  };
  set("epochs", "10");
  set("batch", "128");
  set("model.width", "512");
  set("model.depth", "2");
  set("optim.lr", "0.05");
  set("optim.momentum", "0.9");
  set("data.dir", FashionMnistOptions{}.dir);
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
                  {.seed = static_cast<uint64_t>(config.get_int("seed"))});
}

std::unique_ptr<DataLoading> MlpRecipe::load(const Config& config, bool reader) const {
  return load_fashion_mnist(config, reader);
}

}  // namespace cohort
