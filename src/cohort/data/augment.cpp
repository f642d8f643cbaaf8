// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/core/random.h"
#include "cohort/data.h"

namespace cohort {
namespace {

// Where the window begins, counted from the image's own corner, and whether it is
// mirrored.
struct Window {
  int64_t row;
  int64_t column;
  bool mirrored;
};

Window window_of(const CropFlipOptions& options, int64_t epoch, int64_t sample) {
  const auto key = RandomKey::of_sample(options.seed, epoch, sample, "crop_and_flip");
  const auto places = static_cast<uint64_t>(2 * options.padding + 1);
  return {static_cast<int64_t>(random_below(key, 0, places)) - options.padding,
          static_cast<int64_t>(random_below(key, 1, places)) - options.padding,
          random_below(key, 2, 2) == 1};
}

void move_plane(const float* in, float* out, int64_t height, int64_t width,
                const Window& window, float fill) {
  const int64_t begin = std::clamp<int64_t>(-window.column, 0, width);
  const int64_t end = std::clamp<int64_t>(width - window.column, 0, width);
  for (int64_t y = 0; y < height; ++y, out += width) {
    const int64_t row = y + window.row;
    std::fill(out, out + width, fill);
    if (row >= 0 && row < height && begin < end)
      std::copy(in + row * width + begin + window.column,
                in + row * width + end + window.column, out + begin);
    if (window.mirrored) std::reverse(out, out + width);
  }
}

void move_images(const CropFlipOptions& options, Batch& batch, int64_t epoch) {
  if (!batch.fields.contains("input")) return;  // a rank that needs none
  const Tensor& images = batch.at("input");
  COHORT_CHECK(
      images.dim() == 4 && images.scalar_type() == at::kFloat && images.is_contiguous(),
      "images ", images.sizes());
  COHORT_CHECK(static_cast<int64_t>(batch.ids.size()) == images.size(0),
               batch.ids.size(), " ids of ", images.size(0), " images");
  const int64_t channels = images.size(1), height = images.size(2);
  const int64_t width = images.size(3), plane = height * width;
  COHORT_CHECK(
      options.fill.empty() || static_cast<int64_t>(options.fill.size()) == channels,
      options.fill.size(), " values for ", channels, " channels");
  const Tensor before = images.clone();
  const float* in = before.const_data_ptr<float>();
  float* out = images.mutable_data_ptr<float>();
  for (const int64_t sample : batch.ids) {
    const Window window = window_of(options, epoch, sample);
    for (int64_t c = 0; c < channels; ++c, in += plane, out += plane)
      move_plane(in, out, height, width, window,
                 options.fill.empty() ? 0.0f : options.fill[c]);
  }
}

}  // namespace

Augment crop_and_flip(CropFlipOptions options) {
  return [options = std::move(options)](Batch& batch, int64_t epoch) {
    move_images(options, batch, epoch);
  };
}

}  // namespace cohort
