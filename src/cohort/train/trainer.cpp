// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "cohort/comm/peer_memory.h"
#include "cohort/core/error.h"
#include "cohort/core/hash.h"
#include "cohort/core/memory.h"
#include "cohort/engine/cuda/device_batch.h"
#include "cohort/train/gpu_peak.h"
#include "cohort/train/out_of_memory.h"
#include "cohort/train/step_plan.h"
#include "cohort/train/weights_file.h"

namespace cohort {
namespace {

using Seconds = std::chrono::duration<double>;

int first_slices(const TrainerOptions& options) {
  const int slices = slices_for(options.slices, options.layout, options.batch);
  require_slices(options.batch, slices);
  return slices;
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

// A model that takes what nobody has is refused before anything is made for it.
std::vector<BlockMeasure> measures_for(const Chain& chain, const Dataset& train,
                                       const Dataset* valid,
                                       const TrainerOptions& options) {
  require_fields(train, chain.fields());
  if (valid) require_fields(*valid, chain.fields());
  return options.counted.empty() ? measure_blocks(chain, train) : options.counted;
}

// What a model of tokens reads, be it all of it that the loss counts or some.
int64_t tokens_of_sample(const Dataset& data) {
  const auto fields = data.fields();
  const std::vector<std::string> tokens = {"tokens"};
  if (std::ranges::find(fields, tokens[0]) == fields.end()) return 0;
  return data.gather(std::vector<int64_t>{0}, tokens).at(tokens[0]).numel();
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

ExecutorOptions executor_options(const WorldOptions& options) {
  ExecutorOptions execute = options.execute;
  execute.seed = options.seed;
  execute.usual_count = static_cast<double>(options.batch);
  if (!options.sample_log.empty())
    execute.listed_samples = ceil_div(options.slices, options.layout.dp) *
                             ceil_div(options.batch, options.slices);
  return execute;
}

}  // namespace

Trainer::Trainer(Chain& chain, const Dataset& train, const Dataset* valid,
                 const TrainerOptions& options, const std::atomic<int>& stop,
                 const TrainerServices& services)
    : chain_(chain),
      train_(train),
      valid_(valid),
      options_(options),
      stop_(stop),
      services_(services),
      sampler_({.size = train.size(),
                .batch = options_.batch,
                .slices = first_slices(options_),
                .seed = options_.seed}),
      rate_(rate_options(options_, sampler_)),
      rule_(make_update_rule(options_.update)),
      measures_(measures_for(chain, train, valid, options_)),
      total_steps_(steps_of(options_, sampler_)),
      work_{.cut = sampler_, .forward_only = {}},
      speech_{.context = tokens_of_sample(train)},
      recorder_(options_, services_, sampler_, rate_, train.size(), speech_.context,
                chain.loss.metrics),
      backup_(options_.backup, services_.pages, services_.faults) {}

Trainer::~Trainer() = default;

void Trainer::enter(Communicator& comm, Reporter* reporter, const WorldGpu& gpu) {
  comm_ = &comm;
  loader_ = nullptr;  // it uses the fields of the world before
  here_ = options_in(comm, gpu);
  take_part(Mesh(here_.layout).coordinate(comm.rank(), Axis::kTensor));
  recorder_.enter(comm, here_.layout, reporter);
  lateness_.enter();
  if (comm.generation() > 0 && !facts_.lost)
    facts_.lost = std::chrono::steady_clock::now();
  try {
    take_up(comm, reporter);
  } catch (const c10::OutOfMemoryError& error) {
    throw out_of_memory(error.what(), chain_, measures_, here_, *rule_, comm.rank());
  }
}

// The runner of the world before shows and finishes its state with the tensors that it
// has, and asks its chain for buffers alone, of which tensor parallelism has none.
void Trainer::take_part(int part) {
  if (part == part_.number) return;
  COHORT_CHECK(services_.chain_of_part, "a rank with part ", part,
               " of tensors has nobody who makes its chain");
  COHORT_CHECK(chain_.buffers().empty(), "a model with buffers is cut");
  part_.retired = std::exchange(chain_, services_.chain_of_part(part));
  part_.number = part;
}

WorldOptions Trainer::options_in(const Communicator& comm, const WorldGpu& gpu) const {
  WorldOptions here{options_};
  here.execute.gpu = gpu.number.value_or(options_.execute.gpu);
  here.step.bucket_bytes = gpu.bucket_bytes.value_or(options_.step.bucket_bytes);
  here.layout = layout_for(options_.layout, comm);
  here.shares_memory = cohort::shares_memory(comm);
  here.join_alignment = join_alignment(comm);
  here.slices = calls_all_data_ranks(chain_)
                    ? even_slices(options_.slices, here.layout, options_.batch)
                    : sampler_.options().slices;
  return here;
}

void Trainer::take_up(Communicator& comm, Reporter* reporter) {
  const auto reports = exchange_reports(comm, report());
  SamplerOptions samples = sampler_.options();
  samples.slices = here_.slices;
  work_.cut = Sampler(samples);
  ExecutorOptions execute = executor_options(here_);
  // Chains of ranks that were under way have no first weights any more; what they had
  // is somewhere, or the run cannot go on.
  execute.takes_over = any_begun(reports);
  auto [schedule, valid_samples] = make_plan(chain_, measures_, here_, *rule_);
  work_.valid_samples = valid_samples;
  work_.forward_only = make_forward_schedule(chain_, measures_, here_);
  const auto& whole =
      options_.counted_whole.empty() ? measures_ : options_.counted_whole;
  work_.flops = flops_of(schedule, whole, static_cast<double>(options_.batch));
  work_.step_fields = fields_of(chain_, schedule.role_of(comm.rank()));
  work_.valid_fields = fields_of(chain_, work_.forward_only.role_of(comm.rank()));
  prepare_to_speak();
  loader_ = make_loader(schedule);
  auto runner =
      make_step_runner(chain_, std::move(schedule), options_.update, *rule_, comm,
                       execute, {.faults = services_.faults, .watch = services_.watch});
  backup_.begin({.comm = &comm,
                 .runner = runner.get(),
                 .sampler = &sampler_,
                 .layout = here_.layout.text(),
                 .data = train_.describe(),
                 .reporter = reporter});
  settle(std::move(runner), reports);
  if (state_.committed == 0 && !options_.save_initial.empty())
    save(options_.save_initial);
}

DoneEvent Trainer::fit() {
  try {
    while (state_.committed < total_steps_ && (!facts_.stopping || pace_.is_ahead)) {
      if (must_validate(state_.committed)) {
        validate(state_.committed / sampler_.steps_per_epoch());
        speak();
      }
      step();
    }
    if (must_validate(state_.committed))
      validate(state_.committed / sampler_.steps_per_epoch());
    return finish();
  } catch (const CommError&) {
    facts_.lost = std::chrono::steady_clock::now();
    backup_.end();
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    throw out_of_memory(error.what(), chain_, measures_, here_, *rule_, comm_->rank());
  }
}

// What goes to a disk is compared before.
bool Trainer::must_compare(int64_t step) const {
  if (options_.drift_every_steps == 0) return false;
  return step % options_.drift_every_steps == 0 || options_.backup.is_due(step) ||
         step == total_steps_ || (facts_.stopping && !pace_.is_ahead);
}

// An epoch whose validation a lost rank has cut off is validated by the next world.
bool Trainer::must_validate(int64_t step) const {
  const int64_t epoch = step / sampler_.steps_per_epoch();
  return valid_ && options_.valid_every_epochs > 0 && epoch > facts_.validated &&
         step % sampler_.steps_per_epoch() == 0 &&
         epoch % options_.valid_every_epochs == 0;
}

// What a world before had made is of its slices and fields.
std::unique_ptr<BatchLoader> Trainer::make_loader(const Schedule& schedule) const {
  const auto mine = schedule.mesh.slices(comm_->rank(), schedule.slices);
  const ExecutorOptions& execute = here_.execute;
  const at::Device device = execute.compute_on == ComputeOn::kCuda
                                ? at::Device(at::kCUDA, execute.gpu)
                                : at::Device(at::kCPU);
  return std::make_unique<BatchLoader>(
      [this, device](int64_t step, int slice) {
        const Position position = sampler_.position(step);
        return pinned(make_batch(position, work_.cut.slice(position, slice)), device);
      },
      BatchLoader::Options{.first_slice = mine.begin,
                           .slices = mine.end - mine.begin,
                           .end = total_steps_});
}

// In the loader's thread, but for a batch that a test asks to be another.
Batch Trainer::make_batch(const Position& position,
                          std::span<const int64_t> ids) const {
  Batch batch = train_.gather(ids, work_.step_fields);
  if (services_.augment) services_.augment(batch, position.epoch);
  return batch;
}

Batch Trainer::batch_of(int64_t step, int slice) {
  const bool flips = reach("train.batch", slice);
  Batch batch = loader_->take(step, slice);
  if (!flips || batch.ids.empty()) return batch;
  std::vector<int64_t> others = batch.ids;
  others[0] = (others[0] + 1) % train_.size();
  return make_batch(sampler_.position(step), others);
}

// A named place where a test lets something happen; true: what is held is to be
// damaged.
bool Trainer::reach(std::string_view point, int64_t index) const {
  FaultPlan* const faults = services_.faults;
  return faults && faults->reach(point, comm_->rank(), index) == FaultPlan::Ask::kFlip;
}

// By a signal to this process, or to the agent before there was this process.
int Trainer::asked_to_stop() const {
  const int signal = stop_.load();
  return signal || !services_.membership ? signal : services_.membership->stop_signal();
}

void Trainer::start(int64_t step) {
  const Position position = sampler_.position(step);
  runner_->start({.step = step,
                  .rate = rate_.at(step),
                  .batch = [&](int slice) { return batch_of(step, slice); },
                  .stop = asked_to_stop() != 0,
                  .whole = sampler_.is_whole(position),
                  .sample_key = sample_key(options_.seed, position.epoch),
                  .expected = sampler_.batch_sum(position)});
}

// The state that the step at hand leaves must not be asked for: by nobody on any rank.
bool Trainer::may_run_ahead() const {
  const int64_t next = state_.committed + 1;
  return runner_->runs_ahead() && next < total_steps_ && !facts_.stopping &&
         !must_compare(next) && !options_.backup.is_due(next) && !must_validate(next);
}

// A world of one waits for no rank that could tell it.
void Trainer::require_world() const {
  if (services_.membership && services_.membership->is_over())
    throw CommError("[train] this world is over");
}

void Trainer::step() {
  require_world();
  const bool under_way = std::exchange(pace_.is_ahead, false);
  if (!under_way) {
    pace_.turned = std::chrono::steady_clock::now();
    start(state_.committed);
  }
  if (may_run_ahead()) {
    start(state_.committed + 1);
    pace_.is_ahead = true;
  }
  const StepResult result = runner_->result();
  const auto now = std::chrono::steady_clock::now();
  const double seconds = Seconds(now - std::exchange(pace_.turned, now)).count();
  lateness_.add(seconds);
  conclude(result, seconds);
  if (must_compare(state_.committed)) compare_replicas();
  look_for_slow_rank();
  backup_.after_step(run_state());
}

// The step is committed: it counts, and is spoken of.
void Trainer::conclude(const StepResult& result, double seconds) {
  ++state_.committed;
  facts_.skipped = result.skipped;
  if (!std::isfinite(result.loss) && !result.skipped)
    throw Error(ErrorKind::kBug,
                text("[train] step ", state_.committed, ": the loss is ", result.loss,
                     ", so the run stops; a lower optim.lr or a warm-up may help"));
  facts_.loss = result.loss;
  facts_.stopping |= result.stop;
  recorder_.step(state_.committed, result, seconds, must_compare(state_.committed),
                 facts_);
}

void Trainer::save(const std::string& path) {
  write_weights(path, runner_->state(Holding::kOwned), *comm_);
}

// The run is done all the same: a recovery would end in the same way. All ranks alike.
std::string Trainer::save_final() {
  try {
    if (!options_.save_final.empty()) save(options_.save_final);
    return "";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

// Pages of other ranks, or the agent's, that this one has touched are theirs.
int64_t Trainer::peak_memory() const {
  if (options_.execute.compute_on == ComputeOn::kCuda)
    return runner_->device_peak_bytes();
  const auto* const peers = dynamic_cast<const PeerMemory*>(comm_);
  const int64_t own = peers ? peers->allocated_bytes() : 0;
  return process_peak_memory() - std::max<int64_t>(0, process_shared_memory() - own);
}

void Trainer::tell_flops(DoneEvent& done) const {
  if (!chain_.loss.metrics.flops_per_step || work_.flops.all == 0) return;
  done.flops_per_step = work_.flops.all;
  if (options_.execute.compute_on != ComputeOn::kCuda || done.step_ms == 0) return;
  const auto peak =
      peak_of_gpus(*comm_, here_.execute.gpu, options_.step.precision.compute);
  if (peak) done.mfu = flops_share(work_.flops.model, 1e-3 * done.step_ms, *peak);
}

DoneEvent Trainer::finish() {
  require_sound(*runner_);
  const bool saved = backup_.finish(run_state());
  std::string not_written = save_final();
  if (not_written.empty() && !options_.backup.dir.empty() && !saved)
    not_written = text("[train.checkpoint] ", options_.backup.dir, ": step ",
                       state_.committed, ", the last, is not saved; what is there is "
                       "older");
  if (!facts_.stopping) speak();
  Tensor peak = at::full({1}, peak_memory(), at::kLong);
  comm_->all_reduce(peak, ReduceOp::kMax).wait();
  DoneEvent done = recorder_.summary(facts_);
  done.saved = saved;
  done.not_written = std::move(not_written);
  tell_flops(done);
  done.peak_memory_bytes = peak.item<int64_t>();
  done.stop_signal = facts_.stopping ? std::max(1, asked_to_stop()) : 0;
  const uint64_t hash = runner_->weights_hash();
  done.weights_hash = hex16(hash);
  if (services_.membership && comm_->rank() == 0) services_.membership->finish();
  recorder_.done(done, hash);
  return done;
}

}  // namespace cohort
