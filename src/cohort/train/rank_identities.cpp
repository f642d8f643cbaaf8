// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/rank_identities.h"

#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <cstring>

#include "cohort/core/process.h"

namespace cohort {

std::vector<RankIdentity> identities(Communicator& comm) {
  constexpr int64_t kBytes = 128;
  Tensor mine = at::zeros({kBytes}, at::kByte);
  auto* bytes = reinterpret_cast<char*>(mine.data_ptr<uint8_t>());
  const int64_t pid = ::getpid();
  std::memcpy(bytes, &pid, sizeof(pid));
  host_name().copy(bytes + sizeof(pid), kBytes - sizeof(pid) - 1);
  Tensor all = at::zeros({comm.size() * kBytes}, at::kByte);
  comm.all_gather(all, mine).wait();
  std::vector<RankIdentity> ranks;
  for (int r = 0; r < comm.size(); ++r) {
    const auto* row =
        reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>()) + r * kBytes;
    RankIdentity identity{.rank = r, .host = row + sizeof(pid)};
    identity.generation = comm.generation();
    std::memcpy(&identity.pid, row, sizeof(pid));
    ranks.push_back(std::move(identity));
  }
  return ranks;
}

}  // namespace cohort
