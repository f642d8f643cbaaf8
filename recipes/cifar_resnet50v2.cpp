// SPDX-License-Identifier: Apache-2.0
#include "recipes/cifar_resnet50v2.h"

#include <utility>

#include "cohort/config.h"
#include "cohort/data/cifar10.h"
#include "cohort/nn/models.h"
#include "recipes/image_data.h"

namespace cohort {
namespace {

// What a pixel of 0 becomes: the padding is black, as torchvision's RandomCrop has it.
std::vector<float> black(const ImageScale& scale) {
  std::vector<float> values;
  for (size_t c = 0; c < scale.mean.size(); ++c)
    values.push_back((0.0f - scale.mean[c]) / scale.deviation[c]);
  return values;
}

}  // namespace

std::string_view CifarResNet50V2Recipe::help() const {
  return "ResNet-50V2, 50 or 18 on CIFAR-10 (32 x 32 images, 10 classes)";
}

Config CifarResNet50V2Recipe::defaults() const {
  Keys keys = common_keys();
  keys.add_choice("model.name", "resnet50v2", resnet_names(), "which ResNet")
      .add_choice("model.stem", "small", {"small", "large"},
                  "first layer: 3x3 for small images, or torchvision's 7x7 and pooling")
      .add_choice("model.norm", "slice", {"slice", "batch"},
                  "batch normalisation: over each slice, or over the slices of all "
                  "ranks (not with --exact)")
      .add_bool("data.augment", false,
                "training images: cut at random after 4 pixels of padding, and every "
                "other one mirrored");
  Config config(std::move(keys));
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

Chain CifarResNet50V2Recipe::make_chain(const Config& config,
                                        const TensorPart& part) const {
  require_whole_layers(*this, part);
  ResNetOptions model = resnet_options(config.get_string("model.name"));
  model.width = given_or(config, "model.width", 64);
  model.classes = 10;
  model.small_images = config.get_string("model.stem") == "small";
  const int64_t depth = config.get_int("model.depth");
  if (depth > 0) model.depths = {depth, depth, depth, depth};
  return make_resnet(model,
                     {.seed = static_cast<uint64_t>(config.get_int("seed")),
                      .sync_batch_norm = config.get_string("model.norm") == "batch"});
}

std::unique_ptr<DataLoading> CifarResNet50V2Recipe::load(const Config& config,
                                                         bool reader) const {
  const auto seed = static_cast<uint64_t>(config.get_int("seed"));
  std::unique_ptr<DataLoading> data;
  CropFlipOptions crop{.seed = seed};
  if (config.get_bool("data.synthetic")) {
    data = load_synthetic({.size = 50'000, .shape = {3, 32, 32}, .seed = seed});
  } else {
    const Cifar10Options options{.dir = config.get_string("data.dir"),
                                 .normalize = config.get_bool("data.normalize")};
    ImageSource train = cifar10(options, Split::kTrain);
    crop.fill = black(train.scale);
    data = load_images(std::move(train), cifar10(options, Split::kTest), reader);
  }
  if (!config.get_bool("data.augment")) return data;
  return load_augmented(std::move(data), crop_and_flip(std::move(crop)));
}

}  // namespace cohort
