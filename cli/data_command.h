// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

namespace cohort::cli {

// The flags of `cohort data ACTION`, as given.
struct DataArgs {
  std::string kind;  // what is made
  std::string path;
  int64_t count = 1'000'000;
  int64_t vocab = 50'257;
  uint64_t seed = 0;
  bool json = false;
};

// Makes data of a form that recipes read. ConfigError for a kind that there is not,
// DataError for a folder that cannot be written.
int make_data(const DataArgs& args, std::ostream& out);

// Says what a file of tokens holds. DataError if it is none.
int show_data(const DataArgs& args, std::ostream& out);

// What --help adds to the list of flags.
inline constexpr const char* kDataHelp =
    R"(make tokens writes DIR/train.bin with --count tokens, and DIR/val.bin with a tenth of
that, in the form of llm.c; docs/formats/tokens.md has it. Exit codes: 0 done; 2 usage; 3 a
file that cannot be read or written.

Examples:
  cohort data make tokens made_up --count 100000
  cohort data info made_up/train.bin
  cohort train gpt-tiny --set data.tokenizer=none --set data.dir=made_up
)";

}  // namespace cohort::cli
