// SPDX-License-Identifier: Apache-2.0
// Stands in for gloo's header of this name: what ProcessGroupGloo.hpp calls. Never
// constructed here, so that the layout does not matter.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
