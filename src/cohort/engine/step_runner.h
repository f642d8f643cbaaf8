// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/block.h"
#include "cohort/communicator.h"
#include "cohort/core/fault_point.h"
#include "cohort/data/dataset.h"
#include "cohort/engine/flat_state.h"
#include "cohort/engine/replicas.h"
#include "cohort/engine/state_seal.h"
#include "cohort/engine/step_sums.h"
#include "cohort/engine/step_upload.h"
#include "cohort/engine/vote_state.h"
#include "cohort/observe/meter.h"
#include "cohort/optim/loss_scale.h"
#include "cohort/step/schedule.h"
#include "cohort/step/state_piece.h"
#include "cohort/update_rule.h"

namespace cohort {

class ActionWatch;

// Where blocks compute.
enum class ComputeOn {
  kHost,
  kCuda,
  kStaged,  // on the host, but by the way of kCuda: its arithmetic where there is no
            // GPU
};

struct ExecutorOptions {
  UpdateOptions update;  // what the rule was made of, for the kernels of a device
  DecayOptions decay;
  double clip = 0;  // largest norm of the gradient of the mean loss; 0: any
  uint64_t seed = 0;
  LossScaleOptions loss_scale;  // for float16
  double usual_count = 1;       // samples of a step; sums stay in range by it
  bool skips_bad_steps = true;  // off: a step that is voted against ends the run

  ComputeOn compute_on = ComputeOn::kHost;
  int gpu = 0;          // number of this rank's, on its node
  bool capture = true;  // off: every kernel of a GPU is started by the host

  // Off: no bucket leaves the rank. For measuring what communication costs.
  bool communicate = true;

  // The state comes from peers or a file: at first nothing is taken from rank 0, and
  // the chain's buffers stay as they are. The same on every rank.
  bool takes_over = false;

  // The most samples a rank draws in one step, if every rank is to know the ids that
  // each drew; 0: nobody asks.
  int64_t listed_samples = 0;
};

// What tests do to an executor. It borrows them for as long as it lives.
struct ExecutorServices {
  // Reached as "engine.action", with rank and index, before every action of a step; as
  // "engine.moment", "engine.mirror" and "engine.gradient" where a fault may flip
  // a bit of such memory; and as "engine.vote" when all that a rank looks at before it
  // votes is done. Before every collective that a block makes with a peer in a step as
  // "engine.call", counted within the step.
  FaultPlan* faults = nullptr;
  ActionWatch* watch = nullptr;
};

// What a step needs from outside.
struct StepInput {
  int64_t step = 0;  // counted from 0
  double rate = 0;
  std::function<Batch(int slice)> batch;  // the global batch's; called in order
  bool stop = false;                      // this rank was asked to stop
  bool whole = true;  // the batch has as many samples as usual: all ranks say the same
  // What identifies samples in this step's sum, and what all ranks together must draw;
  // empty: nobody says. Other samples than these are our bug: no rank commits the step.
  uint64_t sample_key = 0;
  std::optional<SampleSum> expected = {};
  // Communication is waited for where it is started. For measuring what each costs.
  bool in_turn = false;
};

// Ends the line that names a gradient which is no number.
inline constexpr const char* kNotFiniteAdvice =
    "; a lower optim.lr or a warm-up may help, and nan=skip leaves such steps out";

struct StepResult {
  double loss = 0;       // mean over the whole batch, on every rank
  double count = 0;      // samples, or whatever the loss counts
  bool stop = false;     // some rank was asked to stop: all know, and stop together
  bool skipped = false;  // the ranks voted against it: nothing changed
  double norm = 0;       // the gradient's, where the schedule asks for it
  StepSplit split;       // where this rank's time went
  SampleSum drawn;       // by all ranks: what they really computed with
  DrawnSamples samples;  // their ids, if ExecutorOptions::listed_samples asks for them
};

// Error of our kind unless the ranks drew what `input` expects.
void require_expected(const StepInput& input, const SampleSum& drawn);

// How long a rank has waited for its peers in one communication of its steps.
struct ActionWait {
  std::string action;  // "Reduce of bucket 2"
  double seconds = 0;
};

// Which pieces of the state a rank names.
enum class Holding {
  kOwned,  // all ranks together name each element once
  kHeld,   // everything that lies in its memory, copies of other ranks' too
};

// What runs the steps of a Schedule on this rank and holds the state they change. After
// an exception it can say how far it came, finish a step that was decided, and show its
// state; else it is only good for destruction. Thread safety: none.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // run() in two: what start() leaves undone is done when result() returns. A runner
  // that runs_ahead() may have kStepsInFlight started: then result() is that of the
  // oldest, and its state that of none; in an elastic run that of the oldest, for the
  // second changes nothing before the first one's result is known, and the next start()
  // or result() starts its rest. Whatever fails, the runner is as it was before.
  virtual void start(const StepInput& input) = 0;
  virtual StepResult result() = 0;
  virtual bool runs_ahead() const { return false; }
  StepResult run(const StepInput& input) {
    start(input);
    return result();
  }

  // Runs a forward-only schedule: sum, count and correct answers of this rank's batch,
  // which may be empty. Collective where parameters are sharded. The schedule stays as
  // it is while this runner is used, for the next batch.
  virtual WeightedLoss evaluate(const Schedule& forward, const Batch& batch) = 0;
  // The same with `last` in the place of the chain's last block, whose parameters it
  // has: what it gives, on the host; nothing on ranks that do not compute it.
  virtual Values outputs(const Schedule& forward, const Batch& batch, Block& last) = 0;

  // The hash of the float32 weights and the buffers (step/weights_hash.h), on every
  // rank alike. Collective: each adds up what it owns, and only the sums travel.
  virtual uint64_t weights_hash() = 0;

  // Collective: compares what several ranks hold of parameters and buffers. The same
  // answer on every rank.
  virtual ReplicaReport compare_replicas() = 0;

  // The state between steps, as views of the memory it lies in: weights as float32
  // masters under their names, "optimizer.STATE.NAME" for each state of the update
  // rule, buffers. After writing into pieces that are held, call refresh().
  virtual std::vector<StatePiece> state(Holding which) = 0;
  // Collective: what blocks compute with follows the masters.
  virtual void refresh() = 0;
  // What is no tensor: the loss scale. Empty if there is none.
  virtual std::string small_state() = 0;
  virtual void set_small_state(const std::string& text) = 0;

  // Since the last call, by communication of a step, in the order of its lanes: the
  // same list on every rank. Along a pipeline each has others: all of it together.
  virtual std::vector<ActionWait> take_waits() { return {}; }

  virtual VoteState vote_state() { return {}; }
  // Does what is missing of a step whose phase is kVoted or later, without its peers.
  // `skip`: the ranks have agreed that it changes nothing. Returns what run() does.
  virtual StepResult finish([[maybe_unused]] bool skip) { return {}; }

  // What of the state has changed by itself since it was last written, as one line;
  // empty where nothing has, or nobody looks.
  virtual std::string damage() const { return {}; }

  // The most memory of its device it ever took; 0 on the host, which counts processes.
  virtual int64_t device_peak_bytes() const = 0;

 protected:
  StepRunner() = default;
};

// DamagedMemory if the state has changed by itself: before it is shown to anybody.
inline void require_sound(const StepRunner& runner) {
  if (const auto damage = runner.damage(); !damage.empty()) throw DamagedMemory(damage);
}

// Collective: an Executor. ConfigError where there is no GPU.
std::unique_ptr<StepRunner> make_step_runner(Chain& chain, Schedule schedule,
                                             const UpdateOptions& update,
                                             const UpdateRule& rule, Communicator& comm,
                                             const ExecutorOptions& options,
                                             const ExecutorServices& services = {});

}  // namespace cohort
