// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/cuda_lane.h"

#include <ATen/cuda/CUDAGraph.h>
#include <ATen/cuda/jiterator.h>
#include <ATen/ops/arange.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <thread>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/random.h"

namespace cohort {
namespace {

using c10::cuda::CUDAEvent;
using c10::cuda::CUDAStream;
using c10::cuda::CUDAStreamGuard;
namespace allocator = c10::cuda::CUDACachingAllocator;

CUDAStream new_stream(int device, bool urgent) {
  return c10::cuda::getStreamFromPool(urgent, static_cast<c10::DeviceIndex>(device));
}

// Philox4x32-10 of one element; core/random.cpp has it in C++. LibTorch compiles it
// when it is first used.
constexpr char kRandomBits[] = R"(
template <typename T>
T random_bits(T stream, T index, T seed) {
  unsigned int c[4] = {(unsigned int)(index >> 2), (unsigned int)(index >> 34),
                       (unsigned int)stream, (unsigned int)(stream >> 32)};
  unsigned int k0 = (unsigned int)seed, k1 = (unsigned int)(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const unsigned long long a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
    const unsigned int c1 = c[1], c3 = c[3];
    c[0] = (unsigned int)(b >> 32) ^ c1 ^ k0;
    c[1] = (unsigned int)b;
    c[2] = (unsigned int)(a >> 32) ^ c3 ^ k1;
    c[3] = (unsigned int)a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return (T)c[index & 3];
}
)";

class Lane final : public CudaLane {
 public:
  explicit Lane(int device) : stream_(new_stream(device, /*urgent=*/false)) {}

  at::Device device() const override { return stream_.device(); }

  void run(const std::function<void()>& work) override {
    const CUDAStreamGuard guard(stream_);
    work();
  }

  void run_beside(int stream, const std::function<void()>& work) override {
    const CUDAStreamGuard guard(stream_at(stream));
    work();
  }

  int make_marks(int count) override {
    const int first = static_cast<int>(marks_.size());
    marks_.resize(first + count);
    return first;
  }

  void reach_mark(int mark) override { marks_.at(mark).synchronize(); }

  void set_mark(int mark) override {
    marks_.at(mark).record(c10::cuda::getCurrentCUDAStream(stream_.device_index()));
  }

  void wait_for_mark(int mark) override {
    marks_.at(mark).block(c10::cuda::getCurrentCUDAStream(stream_.device_index()));
  }

  void takes(const Tensor& tensor) override { tensor.record_stream(stream_); }

  bool can_capture() const override { return true; }

  int capture(const std::function<void()>& work) override {
    try {
      return record(work);
    } catch (const c10::OutOfMemoryError&) {
      throw;  // it is not the work that is wrong
    } catch (const c10::Error& error) {
      const std::string what = error.what_without_backtrace();
      throw ConfigError(text("[engine] this model's step cannot be captured: ",
                             what.substr(0, what.find('\n')),
                             "; blocks may neither draw random numbers nor wait"));
    }
  }

  void replay(int graph) override {
    const CUDAStreamGuard guard(stream_);
    graphs_.at(graph)->replay();
  }

  void drop_graphs() override { graphs_.clear(); }

  void wait() override {
    for (const auto& stream : streams()) stream.synchronize();
  }

  void wait_for_device() override {
    const c10::cuda::CUDAGuard guard(stream_.device());
    c10::cuda::device_synchronize();
  }

  bool wait_at_most(std::chrono::milliseconds time) override {
    const auto deadline = std::chrono::steady_clock::now() + time;
    for (const auto& stream : streams())
      while (!stream.query()) {
        if (std::chrono::steady_clock::now() > deadline) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    return true;
  }

  // One kernel where LibTorch can compile it, a hundred where it cannot.
  Tensor random_bits(const Tensor& streams, uint64_t seed, int64_t first,
                     int64_t count) override {
    if (compiles_) {
      try {
        const Tensor index = at::arange(first, first + count, streams.options());
        return at::cuda::CompileAndLaunchKernel(
            kRandomBits, "random_bits", 1, {streams.unsqueeze(1), index.unsqueeze(0)},
            {static_cast<int64_t>(seed)}, /*return_by_ref=*/false)[0];
      } catch (const c10::Error&) {
        compiles_ = false;
      }
    }
    return cohort::random_bits(streams, seed, first, count);
  }

  int64_t peak_bytes() const override {
    const auto stats = allocator::getDeviceStats(stream_.device_index());
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return stats.allocated_bytes[all].peak;
  }

 private:
  std::vector<CUDAStream> streams() const {
    std::vector<CUDAStream> all = beside_;
    all.push_back(stream_);
    return all;
  }

  // Communication, which others wait for, goes first.
  CUDAStream stream_at(int stream) {
    if (stream == 0) return stream_;
    while (static_cast<int>(beside_.size()) < stream)
      beside_.push_back(new_stream(stream_.device_index(), /*urgent=*/true));
    return beside_[stream - 1];
  }

  int record(const std::function<void()>& work) {
    wait();
    const CUDAStreamGuard guard(stream_);
    auto graph = std::make_unique<at::cuda::CUDAGraph>();
    // Other threads may pin memory meanwhile.
    graph->capture_begin(
        graphs_.empty() ? at::cuda::MempoolId_t{0, 0} : graphs_[0]->pool(),
        cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      abandon(*graph);
      throw;
    }
    graph->capture_end();
    graphs_.push_back(std::move(graph));
    return static_cast<int>(graphs_.size()) - 1;
  }

  // A stream must not stay in capture; what ends it fails, because the work did.
  static void abandon(at::cuda::CUDAGraph& graph) {
    try {
      graph.capture_end();
    } catch (const c10::Error&) {
    }
  }

  CUDAStream stream_;
  std::vector<CUDAStream> beside_;
  std::vector<CUDAEvent> marks_;
  std::vector<std::unique_ptr<at::cuda::CUDAGraph>> graphs_;
  bool compiles_ = true;
};

}  // namespace

std::string why_no_cuda() {
  try {
    c10::cuda::device_count_ensure_non_zero();
    return "";
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    return what.substr(0, what.find('\n'));
  }
}

bool cuda_is_built() { return true; }

int cuda_device_count() { return c10::cuda::device_count(); }

int64_t cuda_free_memory(int device) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
  size_t free = 0, all = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &all));
  return static_cast<int64_t>(free);
}

std::string cuda_device_id(int device) {
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id;
  for (const char c : properties.uuid.bytes) {
    const auto byte = static_cast<unsigned char>(c);
    id += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return id;
}

std::string cuda_device_name(int device) {
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  return properties.name;
}

std::unique_ptr<CudaLane> make_cuda_lane(int device) {
  const std::string why = why_no_cuda();
  if (!why.empty()) throw ConfigError(text("[engine] no GPU to run on: ", why));
  if (device >= cuda_device_count())
    throw ConfigError(
        text("[engine] GPU ", device, "; legal: below ", cuda_device_count()));
  // Captured and autograd's work finds its device by this.
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
  return std::make_unique<Lane>(device);
}

}  // namespace cohort
