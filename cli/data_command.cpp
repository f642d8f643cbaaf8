// SPDX-License-Identifier: Apache-2.0
#include "cli/data_command.h"

#include <algorithm>
#include <ostream>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/json.h"
#include "cohort/data/token_file.h"
#include "cohort/data/token_passages.h"

namespace cohort::cli {
namespace {

// Passage 0 for training, 1 for validation.
void write_made_up(const DataArgs& args, int64_t passage, int64_t count,
                   const std::string& name, std::ostream& out) {
  const auto passages = synthetic_passages(
      {.passages = 2, .length = count, .vocabulary = args.vocab, .seed = args.seed});
  std::vector<int64_t> tokens(static_cast<size_t>(count));
  passages->read(passage, tokens);
  const std::string path = args.path + "/" + name;
  write_token_file(path, std::vector<uint16_t>(tokens.begin(), tokens.end()));
  out << path << ": " << count << " tokens\n";
}

}  // namespace

int make_data(const DataArgs& args, std::ostream& out) {
  if (args.kind != "tokens")
    throw ConfigError(text("[data] make ", args.kind, "; legal: tokens"));
  make_folder(args.path);
  write_made_up(args, 0, args.count, "train.bin", out);
  write_made_up(args, 1, std::max<int64_t>(1, args.count / 10), "val.bin", out);
  return 0;
}

int show_data(const DataArgs& args, std::ostream& out) {
  const TokenFile file(args.path);
  const auto tokens = file.tokens();
  const char* const form = file.has_header() ? "llm.c" : "nanoGPT";
  const int64_t largest = tokens.empty() ? -1 : *std::ranges::max_element(tokens);
  if (args.json)
    out << JsonObject()
               .add("path", args.path)
               .add("form", form)
               .add("tokens", std::ssize(tokens))
               .add("largest", largest)
               .text()
        << "\n";
  else
    out << args.path << ": " << tokens.size() << " tokens in the form of " << form
        << ", the largest " << largest << "\n";
  return 0;
}

}  // namespace cohort::cli
