// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/run_recorder.h"

#include <chrono>
#include <utility>

#include "cohort/comm/gather_records.h"
#include "cohort/core/error.h"

namespace cohort {
namespace {

constexpr size_t kKeptLosses = 4096;  // losses kept of the run, for the plot

}  // namespace

RunRecorder::RunRecorder(const TrainerOptions& options, const TrainerServices& services,
                         const Sampler& sampler, const RateSchedule& rate,
                         int64_t samples, int64_t tokens, const Metrics& metrics)
    : options_(options),
      services_(services),
      sampler_(sampler),
      rate_(rate),
      samples_(samples),
      tokens_of_sample_(tokens),
      metrics_(metrics) {}

void RunRecorder::enter(Communicator& comm, const Layout& layout, Reporter* reporter) {
  comm_ = &comm;
  layout_ = layout;
  reporter_ = reporter;
  sample_log_ = nullptr;
  history_ = nullptr;
  validation_told_ = std::nullopt;
}

// All that is known of a step is in the history before anybody hears of it.
void RunRecorder::begin(int64_t committed, const std::string& why, bool damaged) {
  steps_ = committed;
  learn_last_step(committed);
  open_sample_log(committed);
  if (!reporter_ || options_.history.empty()) return;
  const auto started = std::chrono::duration_cast<std::chrono::microseconds>(
      options_.started.time_since_epoch());
  history_ = std::make_unique<History>(options_.history,
                                       HistoryRun{.seed = options_.seed,
                                                  .samples = samples_,
                                                  .batch = options_.batch,
                                                  .slices = sampler_.options().slices,
                                                  .exact = options_.step.exact},
                                       services_.backlog);
  if (comm_->generation() == 0 && history_->committed() < committed)
    reporter_->note(text("[train] ", options_.history, " ends at step ",
                         history_->committed(), ", what was saved at ", committed,
                         ": the steps between are noted in it by their number alone"));
  history_->begin({.started_us = started.count(),
                   .generation = comm_->generation(),
                   .ranks = comm_->size(),
                   .committed = committed,
                   .layout = layout_.text()},
                  why, known(committed), damaged);
}

// The rank that committed the last step may have died before it was noted: rank 0 hears
// of it from any rank that was there. What was told of validations all hear from rank
// 0: the page of progress may change while they look.
void RunRecorder::learn_last_step(int64_t committed) {
  Membership* const membership = services_.membership;
  if (comm_->generation() == 0) {
    // What commands before this one have validated is not this one's to tell.
    const int64_t epochs = committed / sampler_.steps_per_epoch();
    if (membership && reporter_) membership->validated(epochs);
    return;
  }
  const std::pair mine(membership ? membership->validated_before() : int64_t{0},
                       last_.step == committed ? last_ : LastStep{});
  const auto said = gather_records(text_exchange(*comm_), mine,
                                   "[train] a peer's last step cannot be read");
  last_ = {};
  for (const auto& [told, theirs] : said) {
    if (last_.step == 0 && theirs.step > 0) last_ = theirs;
  }
  if (membership) validation_told_ = said.front().first;
}

KnownStep RunRecorder::known(int64_t step) const {
  if (last_.step != step) return {.step = step, .loss = {}, .drawn = {}};
  return {.step = step, .loss = last_.loss, .drawn = last_.drawn};
}

void RunRecorder::open_sample_log(int64_t committed) {
  sample_log_ = nullptr;
  if (!reporter_ || options_.sample_log.empty()) return;
  sample_log_ = std::make_unique<SampleLog>(options_.sample_log, sampler_, committed,
                                            services_.backlog);
  if (sample_log_->last() < committed && last_.step == committed)
    sample_log_->write(committed, last_.samples);
  if (sample_log_->last() < committed)
    reporter_->note(text("[train] --sample-log ", options_.sample_log, ": steps ",
                         sample_log_->last() + 1, " to ", committed,
                         " are not in it: nobody who drew their samples is left"));
}

void RunRecorder::step(int64_t committed, const StepResult& result, double seconds,
                       bool is_compared, RunFacts& facts) {
  if (facts.first_step_s)
    step_seconds_.add(seconds);
  else
    facts.first_step_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - options_.begun)
            .count();
  speed_.add(static_cast<double>(result.drawn.count), seconds);
  tokens_.add(static_cast<double>(result.drawn.count * tokens_of_sample_), seconds);
  split_.add(result.split);
  if (losses_.size() < kKeptLosses) losses_.push_back(result.loss);
  steps_ = committed;
  last_ = {.step = committed,
           .loss = result.loss,
           .drawn = result.drawn,
           .samples = result.samples};
  if (sample_log_) sample_log_->write(committed, result.samples);
  if (history_ && !is_compared) history_->step(known(committed));
  if (!reporter_) return;
  tell_step(committed, result.loss);
  tell_recovery(facts);
}

void RunRecorder::catch_up(int64_t committed, double loss) {
  if (!reporter_) return;
  steps_ = committed;
  if (committed > 0) tell_step(committed, loss);
}

void RunRecorder::tell_step(int64_t committed, double loss) {
  if (was_told(committed)) return;
  reporter_->step({.step = committed,
                   .epoch = sampler_.position(committed - 1).epoch + 1,
                   .loss = loss,
                   .rate = rate_.at(committed - 1),
                   .samples_per_second = speed_.recent(),
                   .tokens_per_second = tokens_per_second(tokens_.recent())});
}

std::optional<double> RunRecorder::tokens_per_second(double counted) const {
  return metrics_.tokens_per_second ? std::optional(counted) : std::nullopt;
}

// A step that is made again after a rollback, or that another process has spoken of
// before it died. Noted first: rather not at all than twice.
bool RunRecorder::was_told(int64_t step) {
  if (!services_.membership) return false;
  const bool before = step <= services_.membership->committed_before();
  services_.membership->committed(step);
  return before;
}

void RunRecorder::tell_recovery(RunFacts& facts) {
  const auto lost = std::exchange(facts.lost, std::nullopt);
  if (comm_->generation() == 0 || !lost) return;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - *lost;
  reporter_->recovered({.generation = comm_->generation(),
                        .ranks = comm_->size(),
                        .seconds = took.count()});
}

void RunRecorder::compared(int64_t committed, uint64_t weights_hash) {
  if (!history_) return;
  KnownStep step = known(committed);
  step.hash = RecordedHash{weights_hash};
  history_->step(step);
}

void RunRecorder::healed(int64_t committed) {
  if (history_) history_->step(known(committed));
}

void RunRecorder::rolled_back(int64_t from, int64_t to, const std::string& why) {
  if (history_) {
    history_->fill_up_to(from, known(from));
    history_->rollback(to, why, /*damaged=*/true);
  }
  last_ = {};
  open_sample_log(to);
}

void RunRecorder::valid(const ValidEvent& event) {
  if (!reporter_) return;
  Membership* const membership = services_.membership;
  if (!membership || membership->validated(event.epoch)) reporter_->valid(event);
}

void RunRecorder::continuation(const ContinuationEvent& event) {
  if (reporter_) reporter_->continuation(event);
}

void RunRecorder::note(const std::string& line) {
  if (reporter_) reporter_->note(line);
}

DoneEvent RunRecorder::summary(const RunFacts& facts) const {
  return {.steps = steps_,
          .epoch = steps_ > 0 ? sampler_.position(steps_ - 1).epoch + 1 : 0,
          .loss = facts.loss,
          .accuracy = facts.accuracy,
          .samples_per_second = speed_.total(),
          .tokens_per_second = tokens_per_second(tokens_.total()),
          .step_ms = 1e3 * (step_seconds_.weight() > 0 ? step_seconds_.mean() : 0),
          .first_step_s = facts.first_step_s.value_or(0),
          .restarts = comm_->generation(),
          .split = split_.mean(),
          .losses = losses_};
}

void RunRecorder::done(const DoneEvent& event, uint64_t weights_hash) {
  if (history_) history_->end(event.stop_signal, RecordedHash{weights_hash});
  if (!event.not_written.empty()) return;  // the run's last word is that error
  // A rank that dies behind its last word leaves the end of the run to another.
  const bool told =
      services_.membership && reporter_ && !services_.membership->tell_done();
  if (reporter_ && !told) reporter_->done(event);
}

}  // namespace cohort
