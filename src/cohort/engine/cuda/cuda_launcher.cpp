// SPDX-License-Identifier: Apache-2.0
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/user_cache.h"
#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/cuda/device_compiler.h"
#include "cohort/engine/cuda/device_kernels.h"

namespace cohort {
namespace {

// Blocks beyond those that run at once share out what is left when some are slower.
constexpr int64_t kBlocksOfProcessor = 32;

// Wheels and toolkits put NVRTC beside the runtime.
std::filesystem::path runtime_folder() {
  const void* const there = dlsym(RTLD_DEFAULT, "cudaGetDeviceCount");
  Dl_info found{};
  if (!there || dladdr(there, &found) == 0 || !found.dli_fname) return {};
  return std::filesystem::path(found.dli_fname).parent_path();
}

class CudaLauncher final : public KernelLauncher {
 public:
  explicit CudaLauncher(int device)
      : device_(at::kCUDA, static_cast<c10::DeviceIndex>(device)),
        compiler_(DeviceCompiler::find(runtime_folder())) {
    if (!compiler_)
      throw ConfigError(
          "[engine] no libnvrtc to compile kernels with; the CUDA that "
          "LibTorch needs has it");
    const auto ask = [device](cudaDeviceAttr what) {
      int value = 0;
      C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, what, device));
      return value;
    };
    gpu_ = {ask(cudaDevAttrComputeCapabilityMajor),
            ask(cudaDevAttrComputeCapabilityMinor)};
    most_blocks_ = kBlocksOfProcessor * ask(cudaDevAttrMultiProcessorCount);
  }

  at::Device device() const override { return device_; }

  // What is loaded stays as long as the process: work in flight or a captured graph may
  // hold it longer than this lives.
  int load(const KernelProgram& program) override {
    const c10::cuda::CUDAGuard guard(device_);
    const std::string code =
        compiler_->compile_once(program, gpu_, user_cache("kernels"));
    cudaLibrary_t library = nullptr;
    C10_CUDA_CHECK(cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0,
                                       nullptr, nullptr, 0));
    const int first = static_cast<int>(kernels_.size());
    for (const auto& spec : program.kernels) {
      cudaKernel_t kernel = nullptr;
      C10_CUDA_CHECK(cudaLibraryGetKernel(&kernel, library, kernel_name(spec).c_str()));
      // Brings it onto the device now: a first launch may be one that is captured.
      cudaFuncAttributes attributes{};
      C10_CUDA_CHECK(
          cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)));
      kernels_.push_back(kernel);
    }
    return first;
  }

  void launch(int kernel, int64_t blocks, const void* arguments) override {
    if (blocks == 0) return;
    const c10::cuda::CUDAGuard guard(device_);
    void* given[] = {const_cast<void*>(arguments)};
    C10_CUDA_CHECK(cudaLaunchKernel(
        reinterpret_cast<const void*>(kernels_.at(kernel)),
        dim3(static_cast<unsigned int>(std::min(blocks, most_blocks_))),
        dim3(kernels::kThreads), given, 0,
        c10::cuda::getCurrentCUDAStream(device_.index()).stream()));
  }

 private:
  at::Device device_;
  std::unique_ptr<DeviceCompiler> compiler_;
  GpuArchitecture gpu_;
  int64_t most_blocks_ = 0;
  std::vector<cudaKernel_t> kernels_;
};

}  // namespace

std::unique_ptr<StateKernels> make_cuda_kernels(int device) {
  const std::string why = why_no_cuda();
  if (!why.empty()) throw ConfigError(text("[engine] no GPU to run on: ", why));
  if (device >= cuda_device_count())
    throw ConfigError(
        text("[engine] GPU ", device, "; legal: below ", cuda_device_count()));
  return make_device_kernels(std::make_unique<CudaLauncher>(device));
}

}  // namespace cohort
