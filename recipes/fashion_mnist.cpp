// SPDX-License-Identifier: Apache-2.0
#include "recipes/fashion_mnist.h"

#include <utility>

#include "cohort/config/common_keys.h"
#include "cohort/data/fashion_mnist.h"
#include "cohort/data/synthetic.h"
#include "cohort/nn/models.h"

namespace cohort {
namespace {

constexpr int64_t kWidth = 32;

class FilesLoading final : public DataLoading {
 public:
  FilesLoading(const FashionMnistOptions& options, bool reader)
      : train_(FashionMnistLoading::start(options, Split::kTrain, reader)),
        test_(FashionMnistLoading::start(options, Split::kTest, reader)) {}

  DataSets finish(Communicator* node) override {
    DataSets sets;
    sets.train = train_.finish(node);
    sets.valid = test_.finish(node);
    return sets;
  }

 private:
  FashionMnistLoading train_;
  FashionMnistLoading test_;
};

// Samples of the same form that need no files.
class SyntheticLoading final : public DataLoading {
 public:
  explicit SyntheticLoading(uint64_t seed) : seed_(seed) {}

  DataSets finish(Communicator*) override {
    DataSets sets;
    sets.train = make_synthetic({.size = 60'000, .shape = {1, 28, 28}, .seed = seed_});
    return sets;
  }

 private:
  uint64_t seed_;
};

}  // namespace

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
  set("model.width", std::to_string(kWidth));
  set("optim.lr", "0.05");
  set("optim.momentum", "0.9");
  set("data.dir", FashionMnistOptions{}.dir);
  return config;
}

Chain FashionMnistRecipe::make_chain(const Config& config) const {
  const int64_t width = config.get_int("model.width");
  return make_cnn({.classes = 10, .width = width > 0 ? width : kWidth},
                  {.seed = static_cast<uint64_t>(config.get_int("seed"))});
}

std::unique_ptr<DataLoading> FashionMnistRecipe::load(const Config& config,
                                                      bool reader) const {
  if (config.get_bool("data.synthetic"))
    return std::make_unique<SyntheticLoading>(
        static_cast<uint64_t>(config.get_int("seed")));
  return std::make_unique<FilesLoading>(
      FashionMnistOptions{.dir = config.get_string("data.dir"),
                          .normalize = config.get_bool("data.normalize")},
      reader);
}

}  // namespace cohort
