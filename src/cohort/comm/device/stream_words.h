// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::device_comm {

// ConfigError that begins with `what`, unless it is cudaSuccess.
void check_cuda(const char* what, cudaError_t result);

// Words of 64 bits in memory of the host, which streams of a GPU write and wait for
// while neither the host nor a kernel does anything.
class StreamWords {
 public:
  using Operation = CUstreamBatchMemOpParams;

  // ConfigError where the GPU or its driver has no such operations.
  explicit StreamWords(int gpu);

  // What follows in the stream begins when the word is at least that. The difference
  // counts, as a signed number.
  static Operation wait(uint64_t* word, uint64_t least);
  // When all that is before it in the stream is done, and seen by everybody.
  static Operation write(uint64_t* word, uint64_t value);
  // In their order, in the current stream.
  void enqueue(std::vector<Operation> all) const;

 private:
  using Enqueue = CUresult (*)(CUstream, unsigned int, Operation*, unsigned int);

  void check_abilities() const;

  int gpu_;
  Enqueue enqueue_;
};

}  // namespace cohort::device_comm
