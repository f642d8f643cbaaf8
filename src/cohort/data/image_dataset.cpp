// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/image_dataset.h"

#include <ATen/ATen.h>

#include <utility>

#include "cohort/core/error.h"
#include "cohort/data/labelled_dataset.h"

namespace cohort {
namespace {

// Two loops that the compiler turns into vector code: divisions, as ATen does, since a
// product with 1 / 255 has other bits. One pass instead of the four of index_select,
// to, div and the copies between them.
void scale_row(const uint8_t* __restrict in, float* __restrict out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(in[i]) / 255.0f;
}

void scale_row(const uint8_t* __restrict in, float* __restrict out, int64_t count,
               float mean, float deviation) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = (static_cast<float>(in[i]) / 255.0f - mean) / deviation;
  }
}

class ImageDataset final : public LabelledDataset {
 public:
  ImageDataset(std::string name, Tensor images, Tensor labels, int classes,
               ImageScale scale)
      : name_(std::move(name)),
        images_(std::move(images)),
        labels_(std::move(labels)),
        classes_(classes),
        scale_(std::move(scale)) {
    const bool images_fit = images_.scalar_type() == at::kByte && images_.dim() == 4;
    const bool labels_fit = labels_.scalar_type() == at::kByte && labels_.dim() == 1;
    COHORT_CHECK(images_fit && images_.is_contiguous(), "images ", images_.sizes());
    COHORT_CHECK(labels_fit && labels_.is_contiguous(), "labels ", labels_.sizes());
    COHORT_CHECK(images_.size(0) == labels_.size(0), images_.size(0), " images, ",
                 labels_.size(0), " labels");
    const auto channels = static_cast<size_t>(images_.size(1));
    COHORT_CHECK(scale_.mean.size() == scale_.deviation.size() &&
                     (scale_.mean.empty() || scale_.mean.size() == channels),
                 scale_.mean.size(), " means, ", scale_.deviation.size(),
                 " deviations, ", channels, " channels");
  }

  int64_t size() const override { return labels_.size(0); }

  std::string describe() const override {
    return text(name_, ": ", size(), " images ", images_.size(1), "x", images_.size(2),
                "x", images_.size(3), ", ", classes_, " classes");
  }

 private:
  Tensor inputs(std::span<const int64_t> ids) const override {
    const auto rows = static_cast<int64_t>(ids.size());
    Tensor all = at::empty({rows, images_.size(1), images_.size(2), images_.size(3)},
                           at::kFloat);
    const auto pixels = images_.size(1) * images_.size(2) * images_.size(3);
    const auto* images = images_.const_data_ptr<uint8_t>();
    auto* out = all.mutable_data_ptr<float>();
    for (int64_t row = 0; row < rows; ++row)
      scale_image(images + ids[row] * pixels, out + row * pixels, pixels);
    return all;
  }

  int64_t label(int64_t id) const override {
    return labels_.const_data_ptr<uint8_t>()[id];
  }

  void scale_image(const uint8_t* image, float* out, int64_t pixels) const {
    if (scale_.mean.empty()) {
      scale_row(image, out, pixels);
      return;
    }
    const int64_t plane = pixels / images_.size(1);
    for (int64_t c = 0; c < images_.size(1); ++c) {
      scale_row(image + c * plane, out + c * plane, plane, scale_.mean[c],
                scale_.deviation[c]);
    }
  }

  std::string name_;
  Tensor images_;
  Tensor labels_;
  int classes_;
  ImageScale scale_;
};

}  // namespace

std::unique_ptr<Dataset> make_image_dataset(std::string name, Tensor images,
                                            Tensor labels, int classes,
                                            ImageScale scale) {
  return std::make_unique<ImageDataset>(std::move(name), std::move(images),
                                        std::move(labels), classes, std::move(scale));
}

}  // namespace cohort
