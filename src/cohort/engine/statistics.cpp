// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/statistics.h"

#include <c10/core/GradMode.h>

#include <unordered_map>

namespace cohort {
namespace {

int64_t largest(Communicator& comm, int64_t mine) {
  Tensor most = at::full({1}, mine, at::kLong);
  comm.all_reduce(most, ReduceOp::kMax).wait();
  return most.item<int64_t>();
}

// A row is [momentum, value ...] of every buffer in turn; a momentum of 0 says that
// the slice has nothing for that buffer.
int64_t row_width(std::span<const NamedTensor> buffers) {
  int64_t width = 0;
  for (const auto& [name, tensor] : buffers) width += 1 + tensor.numel();
  return width;
}

Tensor pack(std::span<const NamedTensor> buffers, std::span<const Statistic> mine,
            int64_t rows) {
  std::unordered_map<const void*, int64_t> offsets;
  int64_t offset = 0;
  for (const auto& [name, tensor] : buffers) {
    offsets.emplace(tensor.unsafeGetTensorImpl(), offset);
    offset += 1 + tensor.numel();
  }
  Tensor packed = at::zeros({rows, offset});
  for (const auto& s : mine) {
    const int64_t begin = offsets.at(s.buffer.unsafeGetTensorImpl());
    packed[s.slice][begin].fill_(s.momentum);
    packed[s.slice].narrow(0, begin + 1, s.value.numel()).copy_(s.value);
  }
  return packed;
}

void unpack(const Tensor& row, std::span<const NamedTensor> buffers,
            std::vector<Statistic>& into) {
  int64_t offset = 0;
  for (const auto& [name, tensor] : buffers) {
    const double momentum = row[offset].item<float>();
    if (momentum != 0)
      into.push_back({tensor, row.narrow(0, offset + 1, tensor.numel()), momentum});
    offset += 1 + tensor.numel();
  }
}

}  // namespace

std::vector<Statistic> gather_statistics(Communicator& comm,
                                         std::span<const NamedTensor> buffers,
                                         std::span<const Statistic> mine, int slices) {
  const c10::NoGradGuard no_grad;
  const int64_t rows = largest(comm, slices);
  const Tensor packed = pack(buffers, mine, rows);
  Tensor all = at::empty({comm.size() * rows, row_width(buffers)});
  comm.all_gather(all, packed).wait();
  std::vector<Statistic> every;
  for (int64_t r = 0; r < all.size(0); ++r) unpack(all[r], buffers, every);
  return every;
}

void apply_statistics(std::span<const Statistic> statistics) {
  for (const auto& s : statistics)
    s.buffer.mul_(1 - s.momentum).add_(s.value, s.momentum);
}

}  // namespace cohort
