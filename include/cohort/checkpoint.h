// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/communicator.h"
#include "cohort/sharded.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace [[gnu::visibility("default")]] cohort {

struct CheckpointsOptions {
  int64_t keep = 3;  // the newest so many stay; 0: all
};

// The saved states of a training loop of one's own, in a folder that all ranks see.
//
//   cohort::DataParallel parallel(*model, session.comm());
//   cohort::Checkpoints saved("runs/mine", session.comm());
//   saved.keep(*model).keep(optimizer);  // or saved.keep(sharded)
//   for (int64_t step = saved.resume().value_or(0); step < 1000;) {
//     ...
//     if (++step % 100 == 0) saved.save(step);
//   }
//
// A checkpoint has PyTorch's names, is whole or is not there, and can be gone on from
// by any number of ranks: what Sharded has cut is cut anew. `cohort checkpoint` lists,
// checks, compares and converts it (docs/checkpoints.md).
//
// All ranks make the same calls. Failure: CheckpointError on every rank, with the first
// cause; what was saved before stays. A failed resume() leaves a state that is good for
// nothing. ConfigError if another run writes into the folder. CommError as in
// Communicator. Use it from one thread; all that it keeps must outlive it, as must
// `comm`.
class Checkpoints {
 public:
  Checkpoints(const std::string& folder, Communicator& comm,
              const CheckpointsOptions& options = {});
  ~Checkpoints();
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  // Before the first save() or resume(), in the same order on every rank. A module and
  // an optimizer that each rank has all of; rank 0's are saved.
  Checkpoints& keep(torch::nn::Module& module);
  Checkpoints& keep(torch::optim::Optimizer& optimizer);
  // Its module, and the state of its update rule, which ranks have in parts.
  Checkpoints& keep(Sharded& sharded);
  // Anything else, as bytes; rank 0's are saved. `name` is of letters, digits and '_'.
  Checkpoints& keep(const std::string& name, std::function<std::string()> save,
                    std::function<void(const std::string&)> load);

  // Collective: returns its path when it is there. ConfigError if the folder has states
  // of another run: to go on with one, call resume() first.
  std::string save(int64_t step);
  // Collective: loads the newest that can be used, and returns its step. Nothing if the
  // folder has none; CheckpointError if it has some, and none can be used.
  std::optional<int64_t> resume();
  // Why resume() did not take newer ones, a line for each, the newest first.
  const std::vector<std::string>& passed_over() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort
