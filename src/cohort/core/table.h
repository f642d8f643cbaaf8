// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cohort {

using Table = std::vector<std::vector<std::string>>;

// Rows as lines, columns aligned to the left, two blanks between them, none at the
// ends of lines.
std::string format_table(const Table& rows);

}  // namespace cohort
