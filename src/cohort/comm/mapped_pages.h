// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace cohort {

// Memory of the host, page by page, for a GPU, whose address for it is returned: copies
// are fast, and kernels reach it. ConfigError where it cannot be had.
void* map_pages(int gpu, void* pages, size_t bytes);
void unmap_pages(int gpu, void* pages);

}  // namespace cohort
