// SPDX-License-Identifier: Apache-2.0
#include "cli/shown_text.h"

#include "cohort/core/utf8.h"

namespace cohort::cli {
namespace {

constexpr const char* kNoCharacter = "\xEF\xBF\xBD";  // U+FFFD

// One character: of ASCII, or one of those that begin behind it, U+0080 to U+009F.
bool is_control(std::string_view character) {
  const auto byte = static_cast<unsigned char>(character.back());
  if (character.size() == 2) return character[0] == '\xC2' && byte < 0xA0;
  if (character.size() != 1 || byte == '\n' || byte == '\t') return false;
  return byte < 0x20 || byte == 0x7F;
}

}  // namespace

std::string ShownText::add(std::string_view more) {
  waiting_ += more;
  std::string_view rest = waiting_;
  std::string shown;
  while (!rest.empty()) {
    const size_t length = utf8_length(rest);
    if (length == 0 && is_utf8_begun(rest)) break;
    if (length == 0)
      shown += kNoCharacter;
    else if (is_control(rest.substr(0, length)))
      shown += '?';
    else
      shown += rest.substr(0, length);
    rest.remove_prefix(length == 0 ? 1 : length);
  }
  waiting_ = std::string(rest);
  return shown;
}

std::string ShownText::end() {
  std::string shown;
  for (size_t i = 0; i < waiting_.size(); ++i) shown += kNoCharacter;
  waiting_.clear();
  return shown;
}

std::string shown_text(std::string_view text) {
  ShownText shown;
  const std::string begun = shown.add(text);
  return begun + shown.end();
}

}  // namespace cohort::cli
