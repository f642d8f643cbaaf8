// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cohort/data/image_loading.h"
#include "cohort/data/synthetic.h"
#include "cohort/recipe.h"

namespace cohort {

// Images of a training and a test set, from files.
std::unique_ptr<DataLoading> load_images(ImageSource train, ImageSource test,
                                         bool reader);

// Samples of the same form that need no files, and no validation.
std::unique_ptr<DataLoading> load_synthetic(const SyntheticOptions& options);

// The same data, with something done to every training batch.
std::unique_ptr<DataLoading> load_augmented(std::unique_ptr<DataLoading> data,
                                            Augment augment);

}  // namespace cohort
