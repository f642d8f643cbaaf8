// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/user_cache.h"

#include <cstdlib>

namespace cohort {

std::filesystem::path user_cache(std::string_view part) {
  const auto folder = [](const char* name) -> std::filesystem::path {
    const char* const value = std::getenv(name);
    return value ? value : "";
  };
  if (const auto own = folder("COHORT_CACHE"); !own.empty()) return own / part;
  auto caches = folder("XDG_CACHE_HOME");
  if (caches.empty()) caches = folder("HOME");
  if (caches.empty()) return {};
  if (folder("XDG_CACHE_HOME").empty()) caches /= ".cache";
  return caches / "cohort" / part;
}

}  // namespace cohort
