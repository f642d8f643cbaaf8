// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/join_card.h"

#include <sstream>

#include "cohort/core/error.h"

namespace cohort {

std::string JoinCard::where() const {
  return text("rank ", rank, " (", host, ", pid ", pid, ")");
}

std::string to_text(const JoinCard& card) {
  return text(card.rank, " ", card.size, " ", card.pid, "\n", card.version, "\n",
              card.host);
}

JoinCard to_card(const std::string& value) {
  JoinCard card;
  std::istringstream in(value);
  in >> card.rank >> card.size >> card.pid;
  if (!in || card.rank < 0 || card.rank >= card.size)
    throw CommError(text("[comm.join] the store holds no card of a rank: '",
                         value.substr(0, 200), "'"));
  in.ignore(1);
  std::getline(in, card.version);
  std::getline(in, card.host);
  return card;
}

}  // namespace cohort
