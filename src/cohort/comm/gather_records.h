// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "cohort/comm/text_exchange.h"
#include "cohort/core/record.h"

namespace cohort {

// What each rank says, by rank. All call it with the same T. CommError, which begins
// with `what`, if a peer sends something else.
template <typename T>
std::vector<T> gather_records(const TextExchange& exchange, const T& mine,
                              std::string_view what) {
  std::vector<T> all;
  for (const auto& record : exchange.gather(to_record(mine)))
    all.push_back(read_record<T>(record, ErrorKind::kComm, what));
  return all;
}

}  // namespace cohort
