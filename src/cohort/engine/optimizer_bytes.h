// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace torch::optim {
class Optimizer;
}

namespace cohort {

// State that only its owner understands.
struct SavedBytes {
  std::function<std::string()> save;
  std::function<void(const std::string&)> load;
};

// As LibTorch writes it; borrowed.
SavedBytes bytes_of(torch::optim::Optimizer& optimizer);

}  // namespace cohort
