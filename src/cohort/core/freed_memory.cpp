// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/freed_memory.h"

#include <dlfcn.h>
#include <malloc.h>

#include <limits>

namespace cohort {
namespace {

// The C library's own: big blocks come from the heap too, whose end is never given
// back.
void keep_in_libc() {
#ifdef __GLIBC__
  constexpr int kNever = std::numeric_limits<int>::max();
  ::mallopt(M_MMAP_THRESHOLD, kNever);
  ::mallopt(M_TRIM_THRESHOLD, kNever);
#endif
}

// LibTorch's wheels for aarch64 bring mimalloc inside libc10. It gives pages back after
// its option purge_delay, in milliseconds; below 0: never. Its place in the list of
// options is that of versions 2 and 3, and is taken for it only if the value there is
// one of its defaults.
void keep_in_mimalloc() {
  constexpr int kPurgeDelay = 15;
  const auto get =
      reinterpret_cast<long (*)(int)>(::dlsym(RTLD_DEFAULT, "mi_option_get"));
  const auto set =
      reinterpret_cast<void (*)(int, long)>(::dlsym(RTLD_DEFAULT, "mi_option_set"));
  if (!get || !set) return;
  const long delay = get(kPurgeDelay);
  if (delay == 10 || delay == 1000) set(kPurgeDelay, -1);
}

}  // namespace

void keep_freed_memory() {
  keep_in_libc();
  keep_in_mimalloc();
}

}  // namespace cohort
