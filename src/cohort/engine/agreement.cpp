// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/agreement.h"

#include <string>

#include "cohort/core/error.h"
#include "cohort/core/hash.h"

namespace cohort {

void require_equal(Communicator& comm, uint64_t hash, std::string_view what) {
  Tensor mine = at::empty({1}, at::kLong);
  mine.data_ptr<int64_t>()[0] = static_cast<int64_t>(hash);
  Tensor all = at::empty({comm.size()}, at::kLong);
  comm.all_gather(all, mine).wait();
  const int64_t* hashes = all.const_data_ptr<int64_t>();
  std::string others;
  for (int r = 1; r < comm.size(); ++r)
    if (hashes[r] != hashes[0])
      others += (others.empty() ? "" : ", ") + std::to_string(r);
  if (others.empty()) return;
  throw ConfigError(text("[engine] the ", what, " of rank ", others,
                         " is not that of rank 0 (", hex16(hashes[0]),
                         "): all ranks must run the same program with the same "
                         "configuration (rank ",
                         comm.rank(), " of ", comm.size(), " has ", hex16(hash), ")"));
}

}  // namespace cohort
