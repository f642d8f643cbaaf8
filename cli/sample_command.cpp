// SPDX-License-Identifier: Apache-2.0
#include "cli/sample_command.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <ostream>

#include "cli/shown_text.h"
#include "cli/step_options.h"
#include "cohort/core/error.h"
#include "cohort/core/json.h"
#include "cohort/engine/block_runner.h"
#include "cohort/nn/logits_block.h"
#include "cohort/step/chain_specs.h"
#include "cohort/train/compute_threads.h"
#include "recipes/saved_model.h"
#include "recipes/text_data.h"

namespace cohort::cli {
namespace {

namespace fs = std::filesystem;

// As the checkpoint says, or who asks.
SavedModel model_of(const SampleArgs& args, const RecipeList& recipes,
                    const Checkpoint& saved) {
  auto said = saved_model(recipes, saved);
  if (said && !args.recipe.empty() && args.recipe != said->recipe->name())
    throw ConfigError(text("[sample] --recipe ", args.recipe, ": ", saved.path(),
                           " is of recipe ", said->recipe->name(),
                           "; legal: that, or no --recipe"));
  if (!said && args.recipe.empty())
    throw ConfigError(text("[sample] ", saved.path(),
                           ": does not say of which model it is; legal: --recipe R, "
                           "with the --set or --config of the run that saved it"));
  if (said) return *std::move(said);
  const Recipe& recipe = recipes.find(args.recipe);
  return {&recipe, recipe.defaults()};
}

void take_flags(const SampleArgs& args, const RecipeList& recipes,
                const Checkpoint& saved, SavedModel& model) {
  Config& config = model.config;
  const uint64_t seed = saved.manifest().run.seed;
  config.set("seed", std::to_string(seed & INT64_MAX), "the checkpoint");
  take_settings(args.config, args.set, config);
  recipes.require_continuation("[sample] " + saved.path(), *model.recipe, config);
  if (args.seed) config.set("seed", *args.seed, "--seed");
  if (args.tokens) config.set("sample.tokens", *args.tokens, "--tokens");
  if (args.temperature)
    config.set("sample.temperature", *args.temperature, "--temperature");
  if (args.top_k) config.set("sample.top_k", *args.top_k, "--top-k");
  if (args.top_p) config.set("sample.top_p", *args.top_p, "--top-p");
}

// Beside the checkpoint, or in it, where someone has put it.
std::string tokenizer_file(const Config& config, const std::string& checkpoint) {
  if (config.get_string("data.tokenizer") != "bpe") return "";
  const fs::path folder = fs::absolute(checkpoint).lexically_normal();
  const fs::path above =
      (folder.has_filename() ? folder : folder.parent_path()).parent_path();
  std::error_code ignored;
  for (const fs::path& place : {folder / kSavedTokenizer, above / kSavedTokenizer})
    if (fs::exists(place, ignored)) return place.string();
  throw CheckpointError(text("[sample] ", checkpoint, ": its model reads byte pairs, ",
                             "and there is no ", (above / kSavedTokenizer).string(),
                             "; legal: that of the run's checkpoint.dir, put there"));
}

// As a run does: a small model is slower on many threads.
void choose_threads(const Config& config, const Chain& chain, int64_t context) {
  const auto asked = static_cast<int>(config.get_int("threads"));
  const char* const given = std::getenv("OMP_NUM_THREADS");
  if (asked > 0) return at::set_num_threads(asked);
  if (given && *given) return;
  double weights = 0;
  for (const auto& spec : parameter_specs(chain))
    weights += static_cast<double>(spec.numel());
  const double flops = 2 * weights * static_cast<double>(context);
  at::set_num_threads(compute_threads(flops, at::get_num_threads()));
}

// For the token behind the last of the batch.
Tensor logits_for(const Chain& chain, Block& last, const Batch& batch) {
  Context context{.phase = Phase::kEvaluate};
  Values values;
  for (size_t b = 0; b < chain.blocks.size(); ++b) {
    Block& block = b + 1 < chain.blocks.size() ? *chain.blocks[b] : last;
    values = block.forward(with_fields(std::move(values), block, batch), context);
  }
  return values.at(0);
}

// Writes each token as it comes. Returns how many seconds they took.
double write_on(const Chain& chain, int64_t context, Continuation& text,
                const std::function<void(const std::string&)>& write) {
  const auto last = make_logits_block(chain);
  const c10::NoGradGuard no_grad;
  const auto began = std::chrono::steady_clock::now();
  while (!text.is_done()) {
    const Tensor logits = logits_for(chain, *last, text.batch(context));
    write(text.add(text.choose(logits)));
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began)
      .count();
}

}  // namespace

int run_sample(const SampleArgs& args, const RecipeList& recipes, std::ostream& out) {
  Checkpoint saved(checkpoint_at(args.path, "sample"));
  SavedModel model = model_of(args, recipes, saved);
  take_flags(args, recipes, saved, model);
  const auto tokenizer =
      open_tokenizer(model.config, tokenizer_file(model.config, saved.path()));
  const int64_t known = tokenizer->vocabulary().size;
  if (const int64_t wanted = vocabulary_size(model.config, /*masked=*/false);
      known != wanted)
    throw CheckpointError(text("[sample] ", saved.path(), ": its tokenizer has ", known,
                               " tokens; legal: the ", wanted, " of its model"));
  const Chain chain = load_chain(model, saved);
  const ContinuationOptions options = continuation_options(model.config, args.prompt);
  Continuation written(*tokenizer, options);
  ShownText shown;
  const auto write = [&](const std::string& more) {
    if (!args.json) out << shown.add(more) << std::flush;
    if (!out) throw DataError("[sample] stdout takes no more text");
  };
  write(args.prompt);
  const int64_t context = model.recipe->context(model.config);
  choose_threads(model.config, chain, context);
  const double seconds = write_on(chain, context, written, write);
  if (args.json)
    out << JsonObject()
               .add("checkpoint", saved.path())
               .add("step", saved.manifest().run.step)
               .add("recipe", model.recipe->name())
               .add("seed", options.choice.seed)
               .add("prompt", args.prompt)
               .add("text", written.text())
               .add("tokens", written.tokens())
               .add("tokens_per_second",
                    static_cast<double>(written.tokens()) / seconds)
               .text();
  out << shown.end() << std::endl;
  return 0;
}

}  // namespace cohort::cli
