// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tuple>

#include "cohort/core/error.h"
#include "cohort/core/record.h"

namespace cohort {

// What a rank says of itself in the store. Ranks of two versions compare theirs: with
// other fields here they could only say that they cannot read each other's.
struct JoinCard {
  int rank = 0;
  int size = 0;
  std::string version;
  std::string host;
  int pid = 0;

  // "rank 3 (host, pid 7)"
  std::string where() const {
    return text("rank ", rank, " (", host, ", pid ", pid, ")");
  }
};
auto record_fields(Alike<JoinCard> auto& card) {
  return std::tie(card.rank, card.size, card.version, card.host, card.pid);
}

// CommError for what is no card.
inline JoinCard to_card(const std::string& record) {
  constexpr const char* kNoCard = "[comm.join] the store holds no card of a rank";
  auto card = read_record<JoinCard>(record, ErrorKind::kComm, kNoCard);
  if (card.rank < 0 || card.rank >= card.size)
    throw CommError(text(kNoCard, ": rank ", card.rank, " of ", card.size));
  return card;
}

}  // namespace cohort
