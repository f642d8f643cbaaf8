// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/image_loading.h"

#include <filesystem>

#include "cohort/core/error.h"
#include "cohort/data/read_once.h"

namespace cohort {

ImageLoading ImageLoading::start(ImageSource source, bool now) {
  ImageLoading loading(std::move(source));
  if (now) loading.reading_ = std::async(std::launch::async, loading.source_.read);
  return loading;
}

std::unique_ptr<Dataset> ImageLoading::finish(Communicator* node) {
  auto tensors = read_once_per_node(node, [this] {
    auto data = reading_.valid() ? reading_.get() : source_.read();
    return std::vector<Tensor>{std::move(data.images), std::move(data.labels)};
  });
  COHORT_CHECK(tensors.size() == 2, tensors.size(), " tensors");
  return make_image_dataset(source_.name, tensors[0], tensors[1], source_.classes,
                            source_.scale);
}

std::unique_ptr<Dataset> open_images(ImageSource source, Communicator* node) {
  const bool reads = node == nullptr || node->rank() == 0;
  return ImageLoading::start(std::move(source), reads).finish(node);
}

const char* to_text(Split split) { return split == Split::kTrain ? "train" : "test"; }

std::string find_plain_or_packed(const std::string& dir, const std::string& name) {
  std::error_code ignored;
  const std::string plain = (std::filesystem::path(dir) / name).string();
  for (const auto& path : {plain, plain + ".gz"}) {
    if (std::filesystem::exists(path, ignored)) return path;
  }
  return "";
}

}  // namespace cohort
