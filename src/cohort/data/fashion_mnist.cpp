// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/fashion_mnist.h"

#include <ATen/ATen.h>

#include <filesystem>

#include "cohort/core/error.h"
#include "cohort/data/idx.h"

namespace cohort {
namespace {

constexpr int kGarments = 10;
constexpr int kSide = 28;
constexpr float kMean = 0.2860f;
constexpr float kDeviation = 0.3530f;

const char* file_prefix(Split split) {
  return split == Split::kTrain ? "train" : "t10k";
}

[[noreturn]] void fail_fashion(const std::string& what) {
  throw DataError("[data.fashion_mnist] " + what);
}

std::string find_image_file(const std::string& dir, const std::string& name) {
  std::string path = find_plain_or_packed(dir, name);
  if (!path.empty()) return path;
  std::error_code ignored;
  const bool is_dir = std::filesystem::is_directory(dir, ignored);
  fail_fashion(
      text(dir, is_dir ? ": has no " : ": no such folder; looked for ", name, " or ",
           name, ".gz; expected there, plain or .gz: train-images-idx3-ubyte, ",
           "train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte ",
           "(Debian package dataset-fashion-mnist, or set data.dir)"));
}

void check(const LabelledImages& data, const std::string& images_path,
           const std::string& labels_path) {
  if (data.images.size(1) != kSide || data.images.size(2) != kSide) {
    fail_fashion(text(images_path, ": at byte 8: images of ", data.images.size(1), "x",
                      data.images.size(2), "; expected ", kSide, "x", kSide));
  }
  if (data.images.size(0) != data.labels.size(0)) {
    fail_fashion(text(labels_path, ": at byte 4: ", data.labels.size(0),
                      " labels; expected ", data.images.size(0),
                      ", the number of images in ", images_path));
  }
  if (data.images.size(0) == 0)
    fail_fashion(text(images_path, ": at byte 4: no images"));
  const auto* labels = data.labels.const_data_ptr<uint8_t>();
  for (int64_t i = 0; i < data.labels.size(0); ++i) {
    if (labels[i] >= kGarments) {
      fail_fashion(text(labels_path, ": at byte ", 8 + i, ": label ", int{labels[i]},
                        " of sample ", i, "; expected 0 to ", kGarments - 1));
    }
  }
}

}  // namespace

LabelledImages read_fashion_mnist(const std::string& dir, Split split) {
  const std::string prefix = file_prefix(split);
  const auto images_path = find_image_file(dir, prefix + "-images-idx3-ubyte");
  const auto labels_path = find_image_file(dir, prefix + "-labels-idx1-ubyte");
  LabelledImages data{read_idx(images_path, 3), read_idx(labels_path, 1)};
  check(data, images_path, labels_path);
  data.images = data.images.unsqueeze(1);
  return data;
}

ImageSource fashion_mnist(const FashionMnistOptions& options, Split split) {
  ImageSource source{
      .name = text("fashion-mnist ", to_text(split)),
      .classes = kGarments,
      .read = [dir = options.dir, split] { return read_fashion_mnist(dir, split); }};
  if (options.normalize) source.scale = {.mean = {kMean}, .deviation = {kDeviation}};
  return source;
}

std::unique_ptr<Dataset> open_fashion_mnist(const FashionMnistOptions& options,
                                            Split split, Communicator* node) {
  return open_images(fashion_mnist(options, split), node);
}

}  // namespace cohort
