// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/agreement.h"

#include <string>

#include "cohort/core/error.h"
#include "cohort/core/hash.h"

namespace cohort {

std::vector<uint64_t> gather_numbers(Communicator& comm, uint64_t mine) {
  Tensor all = at::empty({comm.size()}, at::kLong);
  comm.all_gather(all, at::full({1}, static_cast<int64_t>(mine), at::kLong)).wait();
  const int64_t* const numbers = all.const_data_ptr<int64_t>();
  return {numbers, numbers + comm.size()};
}

void require_equal(Communicator& comm, uint64_t hash, std::string_view what) {
  const std::vector<uint64_t> hashes = gather_numbers(comm, hash);
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

uint64_t form_of(std::span<const NamedTensor> tensors) {
  Hasher hasher;
  for (const auto& [name, tensor] : tensors) {
    hasher.add(name).add(static_cast<int64_t>(tensor.scalar_type()));
    for (const int64_t size : tensor.sizes()) hasher.add(size);
  }
  return hasher.digest();
}

void take_values(Communicator& comm, const Tensor& tensor, int root) {
  Tensor here = tensor.detach().cpu();
  const Tensor before = tensor.is_cpu() ? Tensor() : here.clone();
  comm.broadcast(here, root).wait();
  if (!tensor.is_cpu() && !at::equal(here, before)) tensor.detach().copy_(here);
}

}  // namespace cohort
