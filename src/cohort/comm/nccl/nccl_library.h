// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <climits>
#include <cstddef>
#include <memory>
#include <string>

#include "cohort/tensor.h"

// What we use of NCCL's C interface (nccl.h of NCCL 2.18 to 2.29, which keeps these
// numbers and layouts from release to release), declared here so that no header of it
// is needed to build, and found at run time: LibTorch brings the library along.
namespace cohort::nccl_backend {

using Handle = struct NcclCommHandle*;  // ncclComm_t
using Stream = void*;                   // cudaStream_t

// ncclResult_t
enum Result : int {
  kSuccess = 0,
  kSystemError = 2,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

// ncclDataType_t
enum DataType : int {
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

// ncclRedOp_t
enum RedOp : int { kSum = 0, kMax = 2, kMin = 3 };

// ncclUniqueId
struct UniqueId {
  char bytes[128];
};

// ncclConfig_t as of NCCL 2.14, the first with `blocking`. Newer libraries read as much
// as `size` says, and take their defaults for what `version` does not have.
struct LibraryConfig {
  size_t size = sizeof(LibraryConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21400;
  int blocking = 0;
  int unread = INT_MIN;  // fills the struct; a later version reads it as undefined
};
static_assert(sizeof(LibraryConfig) == 24 && offsetof(LibraryConfig, blocking) == 16);
static_assert(sizeof(UniqueId) == 128);

// The functions of NCCL by their names, less the "nccl".
struct Library {
  int version = 0;  // 22809 is 2.28.9

  Result (*GetUniqueId)(UniqueId*) = nullptr;
  Result (*CommInitRankConfig)(Handle*, int size, UniqueId, int rank,
                               LibraryConfig*) = nullptr;
  Result (*CommGetAsyncError)(Handle, Result*) = nullptr;
  Result (*CommFinalize)(Handle) = nullptr;
  Result (*CommDestroy)(Handle) = nullptr;
  Result (*CommAbort)(Handle) = nullptr;
  const char* (*GetErrorString)(Result) = nullptr;
  const char* (*GetLastError)(Handle) = nullptr;
  Result (*GroupStart)() = nullptr;
  Result (*GroupEnd)() = nullptr;
  Result (*AllReduce)(const void* in, void* out, size_t count, DataType, RedOp, Handle,
                      Stream) = nullptr;
  Result (*ReduceScatter)(const void* in, void* out, size_t out_count, DataType, RedOp,
                          Handle, Stream) = nullptr;
  Result (*AllGather)(const void* in, void* out, size_t in_count, DataType, Handle,
                      Stream) = nullptr;
  Result (*Broadcast)(const void* in, void* out, size_t count, DataType, int root,
                      Handle, Stream) = nullptr;
  Result (*Send)(const void* in, size_t count, DataType, int peer, Handle,
                 Stream) = nullptr;
  Result (*Recv)(void* out, size_t count, DataType, int peer, Handle, Stream) = nullptr;
};

// What NCCL calls a dtype that communicators carry.
DataType data_type(at::ScalarType dtype);

std::string version_text(int version);  // "2.28.9"

// The library that is loaded already, or else "libnccl.so.2". Throws ConfigError with
// why_no_nccl()'s line.
std::shared_ptr<const Library> load_library();

}  // namespace cohort::nccl_backend

namespace cohort {

// Why NCCL cannot be used here, in one line; empty if its library is there. Starts
// neither NCCL nor CUDA: a process that forks ranks may ask.
std::string why_no_nccl();

// "NCCL 2.28.9"; empty where why_no_nccl() has something to say.
std::string nccl_version();

}  // namespace cohort
