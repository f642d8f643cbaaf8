// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/checkpoint_command.h"
#include "cli/data_command.h"
#include "cli/flags.h"
#include "cli/history_command.h"
#include "cli/sample_command.h"

namespace cohort::cli {

// The flags of the commands that look at files, start no rank and need no GPU.
struct FileArgs {
  CheckpointArgs checkpoint;
  HistoryArgs history;
  DataArgs data;
  SampleArgs sample;
};

// Borrows `args`, `recipes` and `command`: one of those commands, if it is given, is
// put there.
void add_file_commands(CLI::App& app, FileArgs& args, const RecipeList& recipes,
                       Command& command);

}  // namespace cohort::cli
