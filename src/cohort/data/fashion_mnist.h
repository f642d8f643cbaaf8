// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <future>
#include <memory>
#include <string>

#include "cohort/comm/communicator.h"
#include "cohort/core/tensor.h"
#include "cohort/data/dataset.h"

namespace cohort {

enum class Split { kTrain, kTest };

struct FashionMnistOptions {
  // The folder with the four IDX files, plain or .gz. The default is that of Debian's
  // package dataset-fashion-mnist.
  std::string dir = "/usr/share/datasets/fashion-mnist";
  // Off: pixel / 255. On: (pixel / 255 - 0.2860) / 0.3530, mean and standard deviation
  // of the training set.
  bool normalize = false;
};

// What the files hold: uint8 [n, 28, 28] and uint8 [n], labels below 10.
struct LabelledImages {
  Tensor images;
  Tensor labels;
};

// Fashion-MNIST on its way from disk. Reading takes a tenth of a second, so start it
// first thing and do something else before finish():
//
//   auto loading = FashionMnistLoading::start(options, Split::kTrain, local_rank == 0);
//   ... rendezvous, build the model ...
//   auto data = loading.finish(node.get());
//
// start() with `read` true begins to read on a thread of its own, so do not fork after
// it; the destructor waits for that thread.
class FashionMnistLoading {
 public:
  static FashionMnistLoading start(FashionMnistOptions options, Split split,
                                   bool read = true);

  // Call once. Collective over `node`: its rank 0 reads (now, if it was not told to
  // before), the others receive. If the files are missing or damaged every rank throws
  // the same DataError. Without a node this rank reads for itself.
  std::unique_ptr<Dataset> finish(Communicator* node);

 private:
  FashionMnistLoading(FashionMnistOptions options, Split split)
      : options_(std::move(options)), split_(split) {}
  LabelledImages read();

  FashionMnistOptions options_;
  Split split_;
  std::future<LabelledImages> reading_;
};

// Reads and shares in one go: start() and finish().
std::unique_ptr<Dataset> open_fashion_mnist(const FashionMnistOptions& options,
                                            Split split, Communicator* node);

// Only reads and checks the files of a split. Throws DataError.
LabelledImages read_fashion_mnist(const std::string& dir, Split split);

}  // namespace cohort
