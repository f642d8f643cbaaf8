// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cohort/checkpoint/safetensors.h"
#include "cohort/comm/peer_memory.h"
#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/core/memory.h"
#include "cohort/engine/block_measure.h"
#include "cohort/step/checker.h"
#include "cohort/step/generator.h"
#include "cohort/train/step_memory.h"

namespace cohort {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr int64_t kValidBatch = 500;  // samples at once, a rank
constexpr size_t kKeptLosses = 4096;  // of the run, for the plot

TrainerOptions completed(TrainerOptions options) {
  if (options.slices == 0) options.slices = options.layout.dp;
  require_slices(options.batch, options.slices);
  return options;
}

// The ranks of a later world are as many as there are.
Layout layout_for(Layout layout, const Communicator& comm) {
  if (layout.world() == comm.size()) return layout;
  if (comm.generation() == 0)
    throw ConfigError(text("[train] layout ", layout.text(), " is for ", layout.world(),
                           " ranks; the world has ", comm.size()));
  layout.dp = comm.size() / (layout.tp * layout.pp);
  if (layout.dp % layout.replicate != 0) layout.replicate = 1;
  return layout;
}

// A schedule ends with the last epoch, also when --max-steps stops the run before.
RateOptions rate_options(const TrainerOptions& options, const Sampler& sampler) {
  RateOptions rate = options.rate;
  if (rate.total_steps == 0)
    rate.total_steps = options.epochs * sampler.steps_per_epoch();
  return rate;
}

int64_t steps_of(const TrainerOptions& options, const Sampler& sampler) {
  const int64_t all = options.epochs * sampler.steps_per_epoch();
  return options.max_steps > 0 ? std::min(all, options.max_steps) : all;
}

Schedule generate_for(std::vector<BlockSpec> specs, const TrainerOptions& options,
                      std::span<const BlockMeasure> measures, int states,
                      int64_t batch) {
  GeneratorOptions step = options.step;
  step.slices = options.slices;
  step.optimizer_states = states;
  step.shares_memory = options.shares_memory;
  const int64_t samples = (batch + options.slices - 1) / options.slices;
  set_bytes(measures, static_cast<double>(samples), step.precision.compute, specs);
  return generate(specs, options.layout, step);
}

// The memory of the rank that needs most.
MemoryParts memory_of(const Schedule& schedule, const TrainerOptions& options) {
  return check(schedule, {.elastic = options.elastic}).largest().parts;
}

// Whatever it is, the limit a user gives is for each kind of memory.
PlacedMemory limit_of(const TrainerOptions& options) {
  const int64_t given = options.memory_limit;
  return given > 0 ? PlacedMemory{given, given}
                   : available_to_rank(options.ranks_here, options.execute);
}

// The largest batch whose step fits, 0 if none does.
int64_t largest_batch(const std::vector<BlockSpec>& specs,
                      const TrainerOptions& options,
                      std::span<const BlockMeasure> measures, int states,
                      const PlacedMemory& limit) {
  const auto fit = [&](int64_t batch) {
    const Schedule schedule = generate_for(specs, options, measures, states, batch);
    return placed(schedule, memory_of(schedule, options), options.execute).fits(limit);
  };
  if (fit(options.batch)) return options.batch;
  int64_t fits = 0, too_large = options.batch / options.slices;
  while (fits + 1 < too_large) {
    const int64_t middle = (fits + too_large) / 2;
    (fit(middle * options.slices) ? fits : too_large) = middle;
  }
  return fits * options.slices;
}

std::string what_fits(const std::vector<BlockSpec>& specs, TrainerOptions options,
                      std::span<const BlockMeasure> measures, int states,
                      const PlacedMemory& limit) {
  const int64_t fits = largest_batch(specs, options, measures, states, limit);
  const bool may_recompute = !options.step.recompute.is_all();
  options.step.recompute = true;
  const int64_t again =
      may_recompute ? largest_batch(specs, options, measures, states, limit) : 0;
  std::string out = fits > 0 ? text("batch=", fits) : "";
  if (again > fits)
    out +=
        text(out.empty() ? "" : ", or ", "batch=", again, " with step.recompute=all");
  return out.empty() ? "no batch with this layout" : out;
}

// The step, proved before anything is allocated for it.
Schedule make_schedule(const Chain& chain, std::span<const BlockMeasure> measures,
                       const TrainerOptions& options, const UpdateRule& rule) {
  const auto states = static_cast<int>(rule.states().size());
  const auto specs = specs_of(chain);
  Schedule schedule = generate_for(specs, options, measures, states, options.batch);
  const PlacedMemory limit = limit_of(options);
  const MemoryParts most = memory_of(schedule, options);
  const PlacedMemory need = placed(schedule, most, options.execute);
  if (need.fits(limit)) return schedule;
  throw ConfigError(
      text("[train] a rank would need ", need.text(), " (",
           format_bytes(static_cast<double>(most.activations)), " of activations, ",
           format_bytes(static_cast<double>(most.state)), " of state); it may have ",
           (need.gpu > 0 ? limit : PlacedMemory{.host = limit.host}).text(),
           "; would fit: ", what_fits(specs, options, measures, states, limit),
           "; more slices or a higher shard level need less"));
}

// Each rank looks at its own part of the validation set.
Schedule make_forward_schedule(const Chain& chain, const TrainerOptions& options) {
  return generate(specs_of(chain), options.layout,
                  {.slices = options.layout.dp,
                   .bucket_bytes = options.step.bucket_bytes,
                   .offload_parameters = options.step.offload_parameters,
                   .forward_only = true,
                   .precision = options.step.precision});
}

ExecutorOptions executor_options(const TrainerOptions& options) {
  ExecutorOptions execute = options.execute;
  execute.seed = options.seed;
  execute.usual_count = static_cast<double>(options.batch);
  return execute;
}

}  // namespace

Trainer::Trainer(Chain& chain, const Dataset& train, const Dataset* valid,
                 const TrainerOptions& options, const std::atomic<int>& stop)
    : chain_(chain),
      train_(train),
      valid_(valid),
      options_(completed(options)),
      stop_(stop),
      sampler_({.size = train.size(),
                .batch = options_.batch,
                .slices = options_.slices,
                .seed = options_.seed}),
      rate_(rate_options(options_, sampler_)),
      rule_(make_update_rule(options_.update)),
      measures_(measure_blocks(chain, train)),
      total_steps_(steps_of(options_, sampler_)),
      keeper_(options_.keep, options_.pages) {}

Trainer::~Trainer() = default;

void Trainer::enter(Communicator& comm, Reporter* reporter) {
  comm_ = &comm;
  reporter_ = reporter;
  options_.layout = layout_for(options_.layout, comm);
  options_.shares_memory = dynamic_cast<const PeerMemory*>(&comm) != nullptr;
  sample_log_ = nullptr;
  history_ = nullptr;
  window_steps_ = 0;
  window_seconds_ = 0;
  if (comm.generation() > 0 && !lost_) lost_ = std::chrono::steady_clock::now();
  const auto stands = exchange_stands(comm, stand());
  ExecutorOptions execute = executor_options(options_);
  execute.takes_over = decide(stands, comm.rank()).committed >= 0;
  auto runner =
      make_step_runner(chain_, make_schedule(chain_, measures_, options_, *rule_),
                       options_.update, *rule_, comm, execute);
  forward_only_ = make_forward_schedule(chain_, options_);
  keeper_.begin({.comm = &comm,
                 .runner = runner.get(),
                 .sampler = &sampler_,
                 .layout = options_.layout.text(),
                 .data = train_.describe(),
                 .reporter = reporter_});
  settle(*runner, stands);
  runner_ = std::move(runner);
  if (committed_ == 0 && !options_.save_initial.empty()) save(options_.save_initial);
  open_sample_log();
}

void Trainer::open_sample_log() {
  sample_log_ = nullptr;
  if (reporter_ && !options_.sample_log.empty())
    sample_log_ = std::make_unique<SampleLog>(options_.sample_log, sampler_,
                                              options_.layout.dp, committed_);
}

DoneEvent Trainer::fit() {
  try {
    while (committed_ < total_steps_ && !stopping_) {
      if (must_validate()) validate(committed_ / sampler_.steps_per_epoch());
      step();
    }
    if (must_validate()) validate(committed_ / sampler_.steps_per_epoch());
    done_.saved = keeper_.finish(run_state());
    if (!options_.save_final.empty()) save(options_.save_final);
    return summarise();
  } catch (const CommError&) {
    lost_ = std::chrono::steady_clock::now();
    keeper_.end();
    throw;
  }
}

// An epoch whose validation a lost rank has cut off is validated by the next world.
bool Trainer::must_validate() const {
  const int64_t epoch = committed_ / sampler_.steps_per_epoch();
  return valid_ && options_.valid_every_epochs > 0 && epoch > validated_ &&
         committed_ % sampler_.steps_per_epoch() == 0 &&
         epoch % options_.valid_every_epochs == 0;
}

Batch Trainer::batch_of(const Position& position, int slice) const {
  const auto ids = sampler_.slice(position, slice);
  Batch batch = train_.gather(ids);
  batch.ids = ids;
  if (options_.augment) options_.augment(batch, position.epoch);
  return batch;
}

// By a signal to this process, or to the agent before there was this process.
int Trainer::asked_to_stop() const {
  const int signal = stop_.load();
  return signal || !options_.membership ? signal : options_.membership->stop_signal();
}

void Trainer::step() {
  // A world of one waits for nobody who could tell it.
  if (options_.membership && options_.membership->is_over())
    throw CommError("[train] this world is over");
  const auto begin = std::chrono::steady_clock::now();
  const Position position = sampler_.position(committed_);
  const StepResult result =
      runner_->run({.step = committed_,
                    .rate = rate_.at(committed_),
                    .batch = [&](int slice) { return batch_of(position, slice); },
                    .stop = asked_to_stop() != 0});
  const double seconds = Seconds(std::chrono::steady_clock::now() - begin).count();
  window_seconds_ += seconds;
  conclude(result, seconds);
  if (is_compared(committed_)) compare_replicas();
  look_for_slow_rank();
  keeper_.after_step(run_state());
}

// The step is committed: it counts, and is spoken of.
void Trainer::conclude(const StepResult& result, double seconds) {
  const int64_t index = committed_++;
  skipped_ = result.skipped;
  if (!std::isfinite(result.loss) && !result.skipped)
    throw Error(ErrorKind::kBug,
                text("[train] step ", index + 1, ": the loss is ", result.loss,
                     ", so the run stops; a lower optim.lr or a warm-up may help"));
  if (done_.steps == 0)
    done_.first_step_s =
        Seconds(std::chrono::system_clock::now() - options_.started).count();
  else
    step_seconds_.add(seconds);
  speed_.add(result.count, seconds);
  split_.add(result.split);
  if (losses_.size() < kKeptLosses) losses_.push_back(result.loss);
  done_.steps = index + 1;
  done_.epoch = sampler_.position(index).epoch + 1;
  done_.loss = result.loss;
  stopping_ |= result.stop;
  if (sample_log_) sample_log_->write(index);
  if (history_ && !is_compared(committed_)) history_->step(committed_, result.loss);
  if (!reporter_) return;
  if (!was_reported(committed_))
    reporter_->step({.step = committed_,
                     .epoch = done_.epoch,
                     .loss = result.loss,
                     .rate = rate_.at(index),
                     .samples_per_second = speed_.recent()});
  report_recovery();
}

// Every rank looks at its part, in equally many turns: a model that is sharded needs
// all ranks for every one of them. The sums are everyone's.
void Trainer::validate(int64_t epoch) {
  const int64_t size = valid_->size();
  const int64_t begin = size * comm_->rank() / comm_->size();
  const int64_t end = size * (comm_->rank() + 1) / comm_->size();
  const int64_t most = (size + comm_->size() - 1) / comm_->size();
  Tensor sums = at::zeros({3}, at::kDouble);
  double* values = sums.data_ptr<double>();
  for (int64_t turn = 0; turn < most; turn += kValidBatch) {
    const int64_t at = std::min(begin + turn, end);
    std::vector<int64_t> ids(std::min(kValidBatch, end - at));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = at + static_cast<int64_t>(i);
    const WeightedLoss loss = runner_->evaluate(forward_only_, valid_->gather(ids));
    values[0] += loss.sum.item<double>();
    values[1] += loss.count;
    values[2] += loss.correct;
  }
  comm_->all_reduce(sums, ReduceOp::kSum).wait();
  validated_ = epoch;
  done_.accuracy = values[2] / values[1];
  if (reporter_)
    reporter_->valid(
        {.epoch = epoch, .loss = values[0] / values[1], .accuracy = *done_.accuracy});
}

void Trainer::save(const std::string& path) {
  const auto weights = runner_->weights();
  if (comm_->rank() == 0) write_safetensors(path, weights);
}

DoneEvent Trainer::summarise() {
  const bool on_device = options_.execute.compute_on == ComputeOn::kCuda;
  Tensor peak = at::full(
      {1}, on_device ? runner_->device_peak_bytes() : process_peak_memory(), at::kLong);
  comm_->all_reduce(peak, ReduceOp::kMax).wait();
  done_.samples_per_second = speed_.total();
  done_.step_ms = 1e3 * (step_seconds_.weight() > 0 ? step_seconds_.mean() : 0);
  done_.peak_memory_bytes = peak.item<int64_t>();
  done_.restarts = comm_->generation();
  done_.split = split_.mean();
  done_.losses = losses_;
  done_.stop_signal = stopping_ ? std::max(1, asked_to_stop()) : 0;
  const auto weights = runner_->weights();
  if (comm_->rank() == 0) done_.weights_hash = weights_hash(weights);
  if (options_.membership && comm_->rank() == 0) options_.membership->finish();
  if (history_) history_->end(done_.stop_signal, weights_hash_number(weights));
  if (reporter_) reporter_->done(done_);
  return done_;
}

}  // namespace cohort
