// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/loaded_libtorch.h"

#include <dlfcn.h>
#include <torch/headeronly/version.h>

#include "cohort/core/error.h"

namespace cohort {

std::string libtorch_refusal(uint64_t loaded, const std::string& file) {
  constexpr uint64_t kBuilt = TORCH_ABI_VERSION;
  if (loaded >> 40 == kBuilt >> 40) return {};
  const std::string release =
      text("LibTorch ", loaded >> 56, ".", loaded >> 48 & 255, ".", loaded >> 40 & 255);
  return text("[libtorch] ", file.empty() ? "what is loaded" : file, " is ",
              loaded ? release : "an older LibTorch",
              "; legal: " TORCH_VERSION
              ", with which this program was built, or a program built anew");
}

// The number is asked for by name: an older LibTorch does not have it.
void require_built_libtorch() {
  using Number = uint64_t (*)();
  void* const number = ::dlsym(RTLD_DEFAULT, "aoti_torch_abi_version");
  Dl_info where{};
  if (number) ::dladdr(number, &where);
  const auto refusal = libtorch_refusal(number ? reinterpret_cast<Number>(number)() : 0,
                                        where.dli_fname ? where.dli_fname : "");
  if (!refusal.empty()) throw ConfigError(refusal);
}

}  // namespace cohort
