// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

namespace cohort {

// A tensor of a file that repeats one of the model: a head that is tied to the
// embedding. It must have the same values.
struct WeightTwin {
  std::string in_file;
  std::string of_model;
};

// Which tensor of a file each tensor of a model is read from, by their names alone.
struct WeightNames {
  std::map<std::string, std::string> in_file;  // by name in the model
  std::vector<WeightTwin> twins;
  // In the file: parts of a larger model, which this one does without.
  std::vector<std::string> unused;
  // The model's head, and the embedding of the file that it begins with.
  std::vector<WeightTwin> tied_in_file;

  std::vector<std::string> missing;  // in the model, not in the file
  std::vector<std::string> unknown;  // in the file, not in the model
  std::vector<WeightTwin> twice;     // a second tensor of the file for one of the model
};

// Names are equal, or those under which files of GPT-2, Llama and BERT lie on the
// Hugging Face Hub: without the prefix of the model's body, with LayerNorm.gamma and
// .beta for weight and bias, and with a tied head or without. Buffers that no model of
// ours has (masks of attention, inv_freq, position_ids, num_batches_tracked) are passed
// over; BERT's pooler and cls.seq_relationship are `unused`.
WeightNames match_names(const std::set<std::string>& model,
                        const std::set<std::string>& file);

}  // namespace cohort
