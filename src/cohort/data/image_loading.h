// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "cohort/communicator.h"
#include "cohort/data/dataset.h"
#include "cohort/data/image_dataset.h"
#include "cohort/tensor.h"

namespace cohort {

enum class Split { kTrain, kTest };

// What files hold: uint8 [n, channels, height, width] and uint8 [n].
struct LabelledImages {
  Tensor images;
  Tensor labels;
};

// A set of images that fits in memory, and how it is read.
struct ImageSource {
  std::string name;  // "fashion-mnist train"
  int classes = 10;
  ImageScale scale;
  std::function<LabelledImages()> read;  // throws DataError
};

// Images on their way from disk. Reading takes a tenth of a second and more, so start
// it first thing and do something else before finish():
//
//   auto loading = ImageLoading::start(source, local_rank == 0);
//   ... rendezvous, build the model ...
//   auto data = loading.finish(node.get());
//
// start() with `now` true begins to read on a thread of its own, so do not fork after
// it; the destructor waits for that thread.
class ImageLoading {
 public:
  static ImageLoading start(ImageSource source, bool now);

  // Call once. Collective over `node`: its rank 0 reads (now, if it was not told to
  // before), the others receive. If the files are missing or damaged every rank throws
  // the same DataError. Without a node this rank reads for itself.
  std::unique_ptr<Dataset> finish(Communicator* node);

 private:
  explicit ImageLoading(ImageSource source) : source_(std::move(source)) {}

  ImageSource source_;
  std::future<LabelledImages> reading_;
};

// Reads and shares in one go: start() and finish().
std::unique_ptr<Dataset> open_images(ImageSource source, Communicator* node);

// "train" or "test".
const char* to_text(Split split);

// The file `name` in `dir`, plain or with .gz behind it; empty if neither is there.
std::string find_plain_or_packed(const std::string& dir, const std::string& name);

}  // namespace cohort
