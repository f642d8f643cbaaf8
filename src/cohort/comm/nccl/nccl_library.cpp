// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/nccl/nccl_library.h"

#include <dlfcn.h>

#include "cohort/core/error.h"

namespace cohort {
namespace nccl_backend {
namespace {

constexpr const char* kName = "libnccl.so.2";
constexpr int kOldest = 21800;

// Fills a table from an open library; `missing` names the first function it lacks.
class SymbolReader {
 public:
  explicit SymbolReader(void* library) : library_(library) {}

  template <typename Function>
  void read(Function& function, const char* name) {
    void* const symbol = ::dlsym(library_, name);
    if (symbol == nullptr && missing.empty()) missing = name;
    function = reinterpret_cast<Function>(symbol);
  }

  std::string missing;

 private:
  void* library_;
};

// Never closed: NCCL has threads that may outlive what asked for it.
void* open_nccl() {
  if (void* const loaded = ::dlopen(kName, RTLD_NOW | RTLD_NOLOAD)) return loaded;
  return ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);
}

std::string missing_in(void* opened, Library& table) {
  SymbolReader symbols(opened);
  symbols.read(table.GetUniqueId, "ncclGetUniqueId");
  symbols.read(table.CommInitRankConfig, "ncclCommInitRankConfig");
  symbols.read(table.CommGetAsyncError, "ncclCommGetAsyncError");
  symbols.read(table.CommFinalize, "ncclCommFinalize");
  symbols.read(table.CommDestroy, "ncclCommDestroy");
  symbols.read(table.CommAbort, "ncclCommAbort");
  symbols.read(table.GetErrorString, "ncclGetErrorString");
  symbols.read(table.GetLastError, "ncclGetLastError");
  symbols.read(table.GroupStart, "ncclGroupStart");
  symbols.read(table.GroupEnd, "ncclGroupEnd");
  symbols.read(table.AllReduce, "ncclAllReduce");
  symbols.read(table.ReduceScatter, "ncclReduceScatter");
  symbols.read(table.AllGather, "ncclAllGather");
  symbols.read(table.Broadcast, "ncclBroadcast");
  symbols.read(table.Send, "ncclSend");
  symbols.read(table.Recv, "ncclRecv");
  Result (*get_version)(int*) = nullptr;
  symbols.read(get_version, "ncclGetVersion");
  if (symbols.missing.empty() && get_version(&table.version) != kSuccess)
    return "ncclGetVersion";
  return symbols.missing;
}

// A line that says why not, or nothing and a table that is filled.
std::string try_load(Library& table) {
  void* const opened = open_nccl();
  if (opened == nullptr) {
    const char* const why = ::dlerror();
    return text("no NCCL: ", why ? why : kName);
  }
  const std::string missing = missing_in(opened, table);
  if (!missing.empty()) return text(kName, " has no working ", missing);
  if (table.version >= kOldest) return "";
  return text("NCCL ", version_text(table.version),
              " is too old; legal: ", version_text(kOldest), " or newer");
}

}  // namespace

DataType data_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return kFloat64;
    case at::kFloat:
      return kFloat32;
    case at::kHalf:
      return kFloat16;
    case at::kBFloat16:
      return kBfloat16;
    case at::kLong:
      return kInt64;
    case at::kInt:
      return kInt32;
    case at::kByte:
      return kUint8;
    default:
      throw BugError(text("[comm.nccl] no type for ", c10::toString(dtype)));
  }
}

std::string version_text(int version) {
  return text(version / 10'000, ".", version / 100 % 100, ".", version % 100);
}

std::shared_ptr<const Library> load_library() {
  auto table = std::make_shared<Library>();
  const std::string why = try_load(*table);
  if (!why.empty()) throw ConfigError(text("[comm.nccl] ", why));
  return table;
}

}  // namespace nccl_backend

std::string why_no_nccl() {
  nccl_backend::Library table;
  return nccl_backend::try_load(table);
}

std::string nccl_version() {
  nccl_backend::Library table;
  if (!nccl_backend::try_load(table).empty()) return "";
  return "NCCL " + nccl_backend::version_text(table.version);
}

}  // namespace cohort
