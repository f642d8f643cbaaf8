// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>

namespace cohort {

// The folder `part` of what is kept for this user because making it takes long: below
// COHORT_CACHE, or below cohort in XDG_CACHE_HOME or ~/.cache. It may not be there yet,
// and whoever removes it loses time alone. Empty if none of the three is known.
std::filesystem::path user_cache(std::string_view part);

}  // namespace cohort
