// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cohort/session.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace [[gnu::visibility("default")]] cohort {

// A training loop of one's own that outlives its ranks: a rank that dies or freezes is
// replaced. The others keep their processes and their state, and give it to the new
// one.
//
//   cohort::ElasticRun run(*model, optimizer);
//   run.train([&](cohort::Communicator& comm) {
//     cohort::DataParallel parallel(*model, comm);
//     while (run.steps() < 1000) {
//       ... the samples of step run.steps(), of them the share of comm.rank() ...
//       parallel.backward(loss, count);
//       optimizer.step();
//       run.commit();  // right after the update
//     }
//   });
//
//   cohort launch --elastic -n 2 -- ./my_program
//
// The function is called in each world (communicator) that the run has: first with all
// ranks, and again after each loss. It goes on from steps(), which is then the same on
// all ranks, and so are module, optimizer and what else is kept. A step that was not
// committed by anybody is made again. What a step computes must follow from steps() and
// the state: draw random numbers after torch::manual_seed(...) of the step, not on from
// the last ones. Then a run that was disturbed, with as many ranks, ends with the
// weights of one that was not.
//
// Buffers (running statistics) are of the samples that each rank has seen: a new rank
// has those of one that lives. State that is cut over the ranks (Sharded) is not
// kept: use DataParallel here. If all ranks are lost at once, the run begins again, at
// step 0 or, with Checkpoints (checkpoint.h), where it was saved: then call resumed()
// behind Checkpoints::resume(). A rank's number is comm.rank(), not a variable of the
// environment.
//
// Under another launcher, or without --elastic, the function is called once, and a lost
// rank ends the run, as everywhere.
//
// Failure: CommError, thrown through the function by any call of the library, is what
// it waits for: do not catch it. ConfigError if weights were changed in a step that
// nobody has committed, for then there is no state to go on from; if ranks have
// different models; if train() is called again, or there is a second ElasticRun. All
// else that the function throws is thrown on. A main() that catches cohort::Error and
// returns 2 ends the run; what nobody catches kills the rank, which is then replaced.
// Use it from one thread; module and optimizer must outlive it.
class ElasticRun {
 public:
  // Finds the launcher in the environment. To be made once in a process.
  ElasticRun(torch::nn::Module& module, torch::optim::Optimizer& optimizer,
             const ConnectOptions& options = {});
  ~ElasticRun();
  ElasticRun(const ElasticRun&) = delete;
  ElasticRun& operator=(const ElasticRun&) = delete;

  // Further state: `save` gives it as bytes, `load` takes it from another rank. Before
  // train() (else ConfigError), in the same order on every rank.
  void keep(std::function<std::string()> save,
            std::function<void(const std::string&)> load);

  // False if the run ended without this process: it was a spare that nobody needed, or
  // the run went on with fewer ranks. Then this one has no result, and ends.
  bool train(const std::function<void(Communicator& comm)>& body);

  // Steps that were committed, of the run, not of this process.
  int64_t steps() const;
  // The update of step steps() is done here. Does not communicate.
  void commit();
  // In the function, on every rank: the state is that of so many steps, and was loaded.
  void resumed(int64_t steps);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort
