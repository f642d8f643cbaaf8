// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cohort/block.h"
#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/step_upload.h"
#include "cohort/step/gradient_target.h"

namespace cohort {

// The keys of the random numbers of one slice, in device memory. An operation is known
// from its first forward on; begin() then makes its keys of every step. So a captured
// forward finds those of the step it is replayed in.
class SampleKeys final : public DeviceRandom {
 public:
  SampleKeys(CudaLane& lane, uint64_t seed) : lane_(lane), seed_(seed) {}

  // Starts the transfer of the keys of that step's samples; as many as before.
  void begin(int64_t step, std::vector<int64_t> ids);

  Tensor bits(const std::string& operation, int64_t first, int64_t count) override;

 private:
  Tensor streams(const std::string& operation);
  void send(const std::string& operation, StepUpload& memory) const;

  CudaLane& lane_;
  uint64_t seed_;
  int64_t step_ = 0;
  std::vector<int64_t> ids_;
  std::map<std::string, StepUpload> memory_;
};

}  // namespace cohort
