// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cohort::gloo_backend {

// While one lives, lines that begin with "[Gloo] " do not reach std::cout: gloo
// tells it of every group it connects, and stdout belongs to the program. All other
// output passes. Several may live at once, on any threads.
class QuietConnect {
 public:
  QuietConnect();
  ~QuietConnect();
  QuietConnect(const QuietConnect&) = delete;
  QuietConnect& operator=(const QuietConnect&) = delete;
};

}  // namespace cohort::gloo_backend
