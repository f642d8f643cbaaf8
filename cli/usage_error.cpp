// SPDX-License-Identifier: Apache-2.0
#include "cli/usage_error.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/nearest.h"
#include "cohort/core/parse.h"

namespace cohort::cli {
namespace {

// The command that was being read when something was wrong: the first with words that
// it does not know, or the last.
const CLI::App* place_of(const CLI::App* app) {
  const auto chosen = app->get_subcommands();
  return chosen.empty() || !app->remaining().empty() ? app : place_of(chosen.front());
}

// "cohort bench comm"
std::string path_of(const CLI::App& at) {
  const CLI::App* const up = at.get_parent();
  return up ? path_of(*up) + " " + at.get_name() : at.get_name();
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const auto* option : app.get_options())
    if (!option->get_lnames().empty()) flags.push_back("--" + option->get_lnames()[0]);
  return flags;
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* sub : app.get_subcommands(nullptr)) names.push_back(sub->get_name());
  return names;
}

// What follows an unknown flag may be its value, so flags come first.
std::string unknown(const CLI::App& at, const std::vector<std::string>& extras) {
  const auto is_flag = [](const std::string& word) { return word.starts_with("-"); };
  const auto flag = std::ranges::find_if(extras, is_flag);
  const bool has_flag = flag != extras.end();
  const std::string& word = has_flag ? *flag : extras.front();
  const auto commands = commands_of(at);
  if (has_flag)
    return text("unknown flag '", word, "'; nearest to '", word,
                "': ", nearest(word, flags_of(at)));
  if (commands.empty())
    return text("'", word,
                "' is one argument too many; legal: flags alone from here on");
  return text("unknown command '", word, "'; nearest to '", word,
              "': ", nearest(word, commands), "; legal: ", join(commands, ", "));
}

// CLI11 says "Could not convert: NAME = VALUE".
std::string unconverted(const CLI::App& at, const std::string& said) {
  const auto colon = said.find(": "), equals = said.find(" = ");
  if (colon == said.npos || equals == said.npos) return said;
  const std::string name = said.substr(colon + 2, equals - colon - 2);
  const auto* const option = at.get_option_no_throw(name);
  if (option && option->get_items_expected_max() == 0)
    return text(name, ": '", said.substr(equals + 3), "'; legal: the flag alone");
  const bool real = option && option->get_type_name().starts_with("FLOAT");
  return text(name, ": '", said.substr(equals + 3),
              "'; legal: ", real ? "a number" : "a whole number");
}

std::string capitals(std::string name) {
  for (char& c : name)
    c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// CLI11 says "NAME is required"; only arguments without a flag are.
std::string missing(const CLI::App& at, const std::string& said) {
  std::string legal = path_of(at);
  for (const auto* option : at.get_options())
    if (option->get_positional() && option->get_required())
      legal += " " + capitals(option->get_name());
  return text("no ", capitals(said.substr(0, said.find(' '))), "; legal: ", legal);
}

// CLI11 says "NAME: At Most 1 required but received NUMBER".
std::string repeated(const std::string& said) {
  return text(said.substr(0, said.find(':')), " is given ",
              said.substr(said.rfind(' ') + 1), " times; legal: once");
}

// CLI11 says "NAME requires OTHER".
std::string without_other(const std::string& said) {
  return text(said.substr(0, said.find(' ')), " without ",
              said.substr(said.rfind(' ') + 1), "; legal: both");
}

template <typename Kind>
bool is(const CLI::ParseError& error) {
  return dynamic_cast<const Kind*>(&error) != nullptr;
}

std::string what_is_wrong(const CLI::App& at, const CLI::ParseError& error) {
  const std::string said = error.what();
  const auto extras = at.remaining();
  if (is<CLI::ExtrasError>(error) || is<CLI::RequiredError>(error)) {
    if (!extras.empty()) return unknown(at, extras);
    const auto commands = commands_of(at);
    if (!commands.empty()) return "no command; legal: " + join(commands, ", ");
    if (is<CLI::RequiredError>(error)) return missing(at, said);
  }
  if (is<CLI::ConversionError>(error)) return unconverted(at, said);
  if (is<CLI::RequiresError>(error)) return without_other(said);
  if (is<CLI::ArgumentMismatch>(error)) {
    if (said.ends_with(" missing"))
      return said.substr(0, said.find(':')) + ": its value is missing";
    if (said.find(": At Most ") != said.npos) return repeated(said);
  }
  return said;
}

}  // namespace

std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* const at = place_of(&app);
  return text(app.get_name(), ": [usage] ", what_is_wrong(*at, error), "; see ",
              path_of(*at), " --help");
}

}  // namespace cohort::cli
