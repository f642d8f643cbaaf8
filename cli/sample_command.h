// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "recipes/recipe_list.h"

namespace cohort::cli {

// The flags of `cohort sample`, as given.
struct SampleArgs {
  std::string path;              // a checkpoint, or a folder of them
  std::string prompt;            // the text to be continued
  std::string recipe;            // for a checkpoint that does not say it
  std::string config;            // a YAML file
  std::vector<std::string> set;  // key=value
  // Each another way to set a key; none: as the key says.
  std::optional<std::string> tokens, temperature, top_k, top_p, seed;
  bool json = false;
};

// Continues a text by the model of a checkpoint, in this process, and writes it to
// `out` token by token. Returns the exit code. ConfigError for what cannot be
// continued, CheckpointError for what cannot be loaded.
int run_sample(const SampleArgs& args, const RecipeList& recipes, std::ostream& out);

inline constexpr const char* kSampleHelp =
    R"(
CHECKPOINT is a checkpoint (DIR/step-00000100) or a folder of them: then the newest that
can be used. It says which recipe and keys its model is made of; one that was saved before
checkpoints did needs --recipe, and the --set or --config of its run. A learned tokenizer
(data.tokenizer=bpe) is DIR/tokenizer.model. The model reads as many tokens as it was
trained with: the last ones of a longer text. An empty text begins a new document.

One seed gives one text; without --seed it is that of the run. Control characters are
shown as '?' (JSON escapes them), bytes that are no UTF-8 as U+FFFD.

JSON: {"checkpoint":,"step":,"recipe":,"seed":,"prompt":,"text":,"tokens":,
"tokens_per_second":}

Examples:
  cohort sample runs/gpt "In the beginning"
  cohort sample runs/gpt/step-00000100 "And God said" --tokens 50 --temperature 0.5
  cohort sample runs/gpt "" --top-k 20 --seed 7 --json
  cohort sample old/run "And God said" --recipe gpt-tiny --set model.depth=4
)";

}  // namespace cohort::cli
