// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "cohort/engine/cuda/device_text.h"

namespace cohort {

// The architecture of a GPU: 9 and 0 for sm_90.
struct GpuArchitecture {
  int major = 0;
  int minor = 0;
};

// Makes code for a GPU from text, with NVRTC. It needs no GPU, and no header of CUDA:
// the library is looked for when one of these is made.
//
// Products and sums are not fused, divisions and roots are rounded, and numbers near
// zero are kept: so kernels give the bits of the host (optim/update_arithmetic.h).
//
// Failure: BugError for a text that does not compile, with the first line of the log
// that says so. Thread safety: none.
class DeviceCompiler {
 public:
  // Null where NVRTC cannot be loaded: from `folder`, then wherever libraries are
  // found.
  static std::unique_ptr<DeviceCompiler> find(const std::filesystem::path& folder = {});

  // Code for that architecture, as the driver loads it.
  std::string compile(const KernelProgram& program, GpuArchitecture gpu) const;

  // The same from the cache of this user, if it is there; else it is put there. A cache
  // that cannot be read or written costs time and nothing else.
  std::string compile_once(const KernelProgram& program, GpuArchitecture gpu,
                           const std::filesystem::path& cache) const;

  ~DeviceCompiler();

 private:
  struct Library;
  explicit DeviceCompiler(std::unique_ptr<Library> library);

  std::unique_ptr<Library> library_;
};

}  // namespace cohort
