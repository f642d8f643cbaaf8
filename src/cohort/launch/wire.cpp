// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/wire.h"

#include <string.h>

#include <cstdlib>

namespace cohort::process {

std::string encode(const SpawnText& spawn) {
  std::string text;
  for (int core : spawn.cores) text += std::to_string(core) + " ";
  for (const std::string& variable : spawn.variables) {
    text += '\0';
    text += variable;
  }
  return text;
}

SpawnText decode_spawn(const std::string& text) {
  SpawnText spawn;
  size_t at = text.find('\0');
  const std::string cores = text.substr(0, at);
  for (const char* p = cores.c_str(); *p;) {
    char* end = nullptr;
    spawn.cores.push_back(static_cast<int>(std::strtol(p, &end, 10)));
    p = *end == ' ' ? end + 1 : end + strlen(end);
  }
  while (at != std::string::npos) {
    const size_t next = text.find('\0', at + 1);
    spawn.variables.push_back(text.substr(
        at + 1, next == std::string::npos ? std::string::npos : next - at - 1));
    at = next;
  }
  return spawn;
}

}  // namespace cohort::process
