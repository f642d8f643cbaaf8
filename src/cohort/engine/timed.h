// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace cohort {

// Adds the time until it goes out of scope to one part of the split.
class Timed {
 public:
  explicit Timed(double& sum) : sum_(sum), start_(std::chrono::steady_clock::now()) {}
  ~Timed() {
    sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_)
                .count();
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double& sum_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace cohort
