// SPDX-License-Identifier: Apache-2.0
#include "cli/file_commands.h"

#include <iostream>

#include "cli/recipe_help.h"

namespace cohort::cli {
namespace {

CLI::App* add_checkpoint_action(CLI::App& app, CheckpointArgs& args, Command& command,
                                const std::string& name, const std::string& help) {
  auto* sub = app.add_subcommand(name, help);
  sub->add_flag("--json", args.json, "One JSON object per line on stdout");
  sub->callback([&, name] {
    args.action = name;
    command = [&] { return run_checkpoint(args, std::cout); };
  });
  return sub;
}

void add_checkpoint(CLI::App& app, CheckpointArgs& args, Command& command) {
  auto* sub =
      app.add_subcommand("checkpoint", "List, check, compare and convert checkpoints");
  sub->require_subcommand(1);
  sub->footer(kCheckpointHelp);
  const auto add = [&](const char* name, const char* help) {
    auto* action = add_checkpoint_action(*sub, args, command, name, help);
    action->footer(kCheckpointHelp);
    return action;
  };
  add("list", "What is in a folder")->add_option("DIR", args.path)->required();
  add("show", "What a checkpoint holds")->add_option("PATH", args.path)->required();
  add("verify",
      "Reads everything and compares it with its hashes; of a folder, all in it")
      ->add_option("PATH", args.path)
      ->required();
  auto* diff = add("diff", "Names the tensors that differ, and by how much");
  diff->add_option("A", args.path,
                   "A checkpoint, safetensors, .pt or Hugging Face folder")
      ->required();
  diff->add_option("B", args.other, "Another")->required();
  diff->add_flag("--weights", args.weights, "Without the state of optimizers");
  auto* reshape =
      add("reshape", "Writes a checkpoint anew, in another number of files");
  auto* bring =
      add("import", "Makes a checkpoint of safetensors, .pt or Hugging Face files");
  auto* give =
      add("export", "Writes safetensors, a .pt state_dict or a Hugging Face folder");
  for (auto* action : {reshape, bring, give}) {
    action->add_option("PATH", args.path, "Where it is")->required();
    action->add_option("OUT", args.other, "Where it goes")->required();
  }
  for (auto* action : {reshape, bring})
    action->add_option("--files", args.files, "Safetensors files to cut it into")
        ->check(at_least(1, 1000))
        ->capture_default_str();
  for (auto* action : {diff, bring, give})
    action->add_option("--key", args.key,
                       "Of a .pt file that holds more than a state_dict");
  bring->add_option("--step", args.step, "Its step")->check(at_least(0, 1e15));
  give->add_option("--to", args.to, "safetensors, pt or hf")->capture_default_str();
  give->add_option("--dtype", args.dtype, "Of floating tensors: F64, F32, F16 or BF16");
  give->add_option("--max-shard", args.max_shard,
                   "Largest file of a Hugging Face folder")
      ->capture_default_str();
  give->add_flag("--all", args.all, "With the state of optimizers");
}

void add_history(CLI::App& app, HistoryArgs& args, Command& command) {
  auto* sub =
      app.add_subcommand("history", "Check and show what a run has noted of itself");
  sub->require_subcommand(1);
  sub->footer(kHistoryHelp);
  const auto add = [&](const char* name, const char* help) {
    auto* action = sub->add_subcommand(name, help);
    action
        ->add_option("F", args.path,
                     "The history: history.log below --out, or that folder")
        ->required();
    action->add_flag("--json", args.json, "One JSON object per line on stdout");
    action->footer(kHistoryHelp);
    return action;
  };
  auto* verify = add("verify", "Proves order, samples and hashes; names each breach");
  verify->add_option("F2", args.other, "Another, to have equal hashes at equal steps");
  verify->callback([&] { command = [&] { return verify_history(args, std::cout); }; });
  auto* show = add("show", "One line per record");
  show->add_option("--last", args.last, "Only so many")->check(at_least(1, 1e15));
  show->callback([&] { command = [&] { return show_history(args, std::cout); }; });
}

void add_data(CLI::App& app, DataArgs& args, Command& command) {
  auto* sub = app.add_subcommand("data", "Look at data sets, or make some up");
  sub->require_subcommand(1);
  sub->footer(kDataHelp);
  auto* make = sub->add_subcommand("make", "Made-up data in the form of real ones");
  make->add_option("KIND", args.kind, "tokens")->required();
  make->add_option("DIR", args.path, "Folder to make it in")->required();
  make->add_option("--count", args.count, "Of tokens for training")
      ->check(at_least(1, 2e9))
      ->capture_default_str();
  make->add_option("--vocab", args.vocab, "Tokens of the vocabulary")
      ->check(at_least(2, 65536))
      ->capture_default_str();
  make->add_option("--seed", args.seed, "Another one makes other data")
      ->capture_default_str();
  make->callback([&] { command = [&] { return make_data(args, std::cout); }; });
  auto* info = sub->add_subcommand("info", "What a file of tokens holds");
  info->add_option("PATH", args.path, "A file of tokens")->required();
  info->add_flag("--json", args.json, "One JSON object");
  info->callback([&] { command = [&] { return show_data(args, std::cout); }; });
  for (auto* action : {make, info}) action->footer(kDataHelp);
}

void add_sample(CLI::App& app, SampleArgs& args, const RecipeList& recipes,
                Command& command) {
  auto* sub = app.add_subcommand(
      "sample", "Continue a text by the language model of a checkpoint");
  sub->add_option("CHECKPOINT", args.path, "A checkpoint, or a folder of them")
      ->required();
  sub->add_option("TEXT", args.prompt, "What is continued; may be empty")->required();
  sub->add_option("--tokens", args.tokens, "At most so many (100)");
  sub->add_option("--temperature", args.temperature,
                  "Above 1 bolder, below more careful; 0: the likeliest token (0.8)");
  sub->add_option("--top-k", args.top_k, "Draw among so many of the likeliest; 0: all");
  sub->add_option("--top-p", args.top_p,
                  "Draw among the likeliest that have this probability together (1)");
  sub->add_option("--seed", args.seed, "Another one gives another text");
  sub->add_option("--recipe", args.recipe, "Of a checkpoint that does not say it");
  add_key_flags(*sub, args.set, args.config);
  sub->add_flag("--json", args.json, "One JSON object");
  sub->footer([&] { return recipe_help(recipes, args.recipe, kSampleHelp); });
  sub->callback(
      [&] { command = [&] { return run_sample(args, recipes, std::cout); }; });
}

}  // namespace

void add_file_commands(CLI::App& app, FileArgs& args, const RecipeList& recipes,
                       Command& command) {
  add_checkpoint(app, args.checkpoint, command);
  add_history(app, args.history, command);
  add_data(app, args.data, command);
  add_sample(app, args.sample, recipes, command);
}

}  // namespace cohort::cli
