// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/engine/cuda/kernel_launcher.h"
#include "cohort/engine/state_kernels.h"

namespace cohort {

// An update rule over a shard by kernels: the first of update_program() has the number
// `kernel`. Its tables lie in memory of the device. Borrows the launcher.
class DeviceShardUpdate final : public ShardUpdate {
 public:
  DeviceShardUpdate(KernelLauncher& launcher, int kernel,
                    const ShardUpdateOptions& options);

  void reduce(const ShardMemory& shard, const Tensor& gradient, const Tensor& numbers,
              const Tensor& sums) override;
  void apply(const ShardMemory& shard, const Tensor& gradient, const Tensor& numbers,
             const Tensor& totals) override;

 private:
  kernels::UpdateArguments arguments(const ShardMemory& shard, const Tensor& gradient,
                                     const Tensor& numbers) const;

  KernelLauncher& launcher_;
  int kernel_;
  size_t states_;
  bool reduces_;
  int64_t end_ = 0;  // where the last range ends
  at::ScalarType gradient_;
  std::optional<at::ScalarType> published_;
  kernels::RuleNumbers rule_;
  // Rows of kernels::RangeTraits, kernels::Tile and, for chunks, kernels::Tile again.
  Tensor ranges_, tiles_, chunks_;
};

}  // namespace cohort
