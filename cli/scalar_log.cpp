// SPDX-License-Identifier: Apache-2.0
#include "cli/scalar_log.h"

#include <array>

#include "cohort/core/error.h"

namespace cohort::cli {

ScalarLog::ScalarLog(const std::string& out, int64_t log_every, Backlog* backlog)
    : folder_(out.empty() ? "" : out + "/tensorboard"),
      backlog_(backlog),
      log_every_(log_every) {
  open();
}

bool ScalarLog::open() {
  if (file_ || folder_.empty()) return file_ != nullptr;
  try {
    file_ = std::make_unique<EventFile>(folder_, backlog_);
    if (backlog_) backlog_->found(folder_);
  } catch (const DataError& error) {
    if (!backlog_) throw;
    backlog_->miss(folder_, error.what());
  }
  return file_ != nullptr;
}

void ScalarLog::step(const StepEvent& event) {
  last_step_ = event.step;
  if (event.step % log_every_ != 0 || !open()) return;
  const std::array<Scalar, 3> scalars = {
      Scalar{"loss_metrics/global_avg_loss", static_cast<float>(event.loss)},
      Scalar{"lr", static_cast<float>(event.rate)},
      Scalar{"throughput(samples/s)", static_cast<float>(event.samples_per_second)}};
  file_->add(event.step, scalars);
  file_->flush();
}

void ScalarLog::valid(const ValidEvent& event) {
  if (!open()) return;
  const std::array<Scalar, 2> scalars = {
      Scalar{"validation/loss", static_cast<float>(event.loss)},
      Scalar{"validation/accuracy", static_cast<float>(event.accuracy)}};
  file_->add(last_step_, scalars);
  file_->flush();
}

void ScalarLog::finish() {
  if (open()) file_->flush();
}

}  // namespace cohort::cli
