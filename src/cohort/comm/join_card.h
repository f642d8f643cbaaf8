// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cohort {

// What a rank says of itself in the store, as lines.
struct JoinCard {
  int rank = 0;
  int size = 0;
  std::string version;
  std::string host;
  int pid = 0;

  std::string where() const;  // "rank 3 (host, pid 7)"
};

std::string to_text(const JoinCard& card);
// CommError for what is no card.
JoinCard to_card(const std::string& value);

}  // namespace cohort
