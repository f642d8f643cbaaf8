// SPDX-License-Identifier: Apache-2.0
#include "recipes/fashion_mnist_recipe.h"

#include "cohort/config.h"
#include "cohort/data/fashion_mnist.h"
#include "cohort/nn/models.h"
#include "recipes/image_data.h"

namespace cohort {
std::string_view FashionMnistRecipe::help() const {
  return "a CNN of two convolutions on Fashion-MNIST (28 x 28 images, 10 classes)";
}

Config FashionMnistRecipe::defaults() const {
  Config config(common_keys());
  const auto set = [&](std::string_view key, std::string_view value) {
    config.set(key, value, "recipe fashion-mnist");
  };
  set("epochs", "10");
  set("batch", "128");
  set("model.width", "32");
  set("optim.lr", "0.05");
  set("optim.momentum", "0.9");
  set("data.dir", FashionMnistOptions{}.dir);
  return config;
}

Chain FashionMnistRecipe::make_chain(const Config& config,
                                     const TensorPart& part) const {
  require_whole_layers(*this, part);
  return make_cnn({.classes = 10, .width = given_or(config, "model.width", 32)},
                  {.seed = static_cast<uint64_t>(config.get_int("seed"))});
}

std::unique_ptr<DataLoading> FashionMnistRecipe::load(const Config& config,
                                                      bool reader) const {
  return load_fashion_mnist(config, reader);
}

std::unique_ptr<DataLoading> load_fashion_mnist(const Config& config, bool reader) {
  if (config.get_bool("data.synthetic"))
    return load_synthetic({.size = 60'000,
                           .shape = {1, 28, 28},
                           .seed = static_cast<uint64_t>(config.get_int("seed"))});
  const FashionMnistOptions options{.dir = config.get_string("data.dir"),
                                    .normalize = config.get_bool("data.normalize")};
  return load_images(fashion_mnist(options, Split::kTrain),
                     fashion_mnist(options, Split::kTest), reader);
}

}  // namespace cohort
