// SPDX-License-Identifier: Apache-2.0
#include "recipes/cifar_resnet50v2.h"

#include "cohort/config/common_keys.h"
#include "cohort/data/cifar10.h"
#include "cohort/nn/models.h"
#include "recipes/image_data.h"

namespace cohort {

std::string_view CifarResNet50V2Recipe::help() const {
  return "ResNet-50V2 on CIFAR-10 (32 x 32 images, 10 classes)";
}

Config CifarResNet50V2Recipe::defaults() const {
  Config config(common_keys());
  const auto set = [&](std::string_view key, std::string_view value) {
    config.set(key, value, "recipe cifar-resnet50v2");
  };
  set("epochs", "100");
  set("batch", "128");
  set("model.width", "64");
  set("optim.lr", "0.1");
  set("optim.momentum", "0.9");
  set("optim.nesterov", "true");
  set("optim.weight_decay", "0.0005");
  set("schedule.name", "cosine");
  set("schedule.warmup_steps", "1955");  // 5 epochs of 391 steps
  set("data.normalize", "true");
  return config;
}

Chain CifarResNet50V2Recipe::make_chain(const Config& config) const {
  ResNetOptions model{.width = given_or(config, "model.width", 64),
                      .classes = 10,
                      .block = ResNetBlock::kPreActivation,
                      .small_images = true};
  const int64_t depth = config.get_int("model.depth");
  if (depth > 0) model.depths = {depth, depth, depth, depth};
  return make_resnet(model, {.seed = static_cast<uint64_t>(config.get_int("seed"))});
}

std::unique_ptr<DataLoading> CifarResNet50V2Recipe::load(const Config& config,
                                                         bool reader) const {
  if (config.get_bool("data.synthetic"))
    return load_synthetic({.size = 50'000,
                           .shape = {3, 32, 32},
                           .seed = static_cast<uint64_t>(config.get_int("seed"))});
  const Cifar10Options options{.dir = config.get_string("data.dir"),
                               .normalize = config.get_bool("data.normalize")};
  return load_images(cifar10(options, Split::kTrain), cifar10(options, Split::kTest),
                     reader);
}

}  // namespace cohort
