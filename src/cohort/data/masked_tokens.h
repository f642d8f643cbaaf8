// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "cohort/data.h"
#include "cohort/data/dataset.h"
#include "cohort/data/tokenizer.h"

namespace cohort {

// Masked language modelling (Devlin et al. 2019). round(share * length) places of each
// sample are to be told by the model: their target is the token there, that of all
// others is ignored. Eight of ten such tokens become the mask, one another of the
// vocabulary, one stays. Which, depends on the seed, the epoch and the sample alone.
struct MaskOptions {
  double share = 0.15;
  Vocabulary vocabulary;
  uint64_t seed = 0;
};

// For the fields "tokens" and "target", both the tokens of the text before.
Augment mask_tokens(const MaskOptions& options);

// The same samples with their masks of epoch 0: for validation, where all epochs have
// the same.
std::unique_ptr<Dataset> make_masked_dataset(std::unique_ptr<Dataset> text,
                                             const MaskOptions& options);

}  // namespace cohort
