// SPDX-License-Identifier: Apache-2.0
#include "recipes/image_data.h"

#include <utility>

namespace cohort {
namespace {

class FilesLoading final : public DataLoading {
 public:
  FilesLoading(ImageSource train, ImageSource test, bool reader)
      : train_(ImageLoading::start(std::move(train), reader)),
        test_(ImageLoading::start(std::move(test), reader)) {}

  DataSets finish(Communicator* node) override {
    DataSets sets;
    sets.train = train_.finish(node);
    sets.valid = test_.finish(node);
    return sets;
  }

 private:
  ImageLoading train_;
  ImageLoading test_;
};

class AugmentedLoading final : public DataLoading {
 public:
  AugmentedLoading(std::unique_ptr<DataLoading> data, Augment augment)
      : data_(std::move(data)), augment_(std::move(augment)) {}

  DataSets finish(Communicator* node) override {
    DataSets sets = data_->finish(node);
    sets.augment = augment_;
    return sets;
  }

 private:
  std::unique_ptr<DataLoading> data_;
  Augment augment_;
};

}  // namespace

std::unique_ptr<DataLoading> load_images(ImageSource train, ImageSource test,
                                         bool reader) {
  return std::make_unique<FilesLoading>(std::move(train), std::move(test), reader);
}

std::unique_ptr<DataLoading> load_synthetic(const SyntheticOptions& options) {
  DataSets sets;
  sets.train = make_synthetic(options);
  return data_at_hand(std::move(sets));
}

std::unique_ptr<DataLoading> load_augmented(std::unique_ptr<DataLoading> data,
                                            Augment augment) {
  return std::make_unique<AugmentedLoading>(std::move(data), std::move(augment));
}

}  // namespace cohort
