// SPDX-License-Identifier: Apache-2.0
#include "cli/scalar_log.h"

#include <array>

namespace cohort::cli {

ScalarLog::ScalarLog(const std::string& out, int64_t log_every, Backlog* backlog)
    : log_every_(log_every) {
  if (!out.empty()) file_ = std::make_unique<EventFile>(out + "/tensorboard", backlog);
}

void ScalarLog::step(const StepEvent& event) {
  last_step_ = event.step;
  if (!file_ || event.step % log_every_ != 0) return;
  const std::array<Scalar, 3> scalars = {
      Scalar{"loss_metrics/global_avg_loss", static_cast<float>(event.loss)},
      Scalar{"lr", static_cast<float>(event.rate)},
      Scalar{"throughput(samples/s)", static_cast<float>(event.samples_per_second)}};
  file_->add(event.step, scalars);
  file_->flush();
}

void ScalarLog::valid(const ValidEvent& event) {
  if (!file_) return;
  const std::array<Scalar, 2> scalars = {
      Scalar{"validation/loss", static_cast<float>(event.loss)},
      Scalar{"validation/accuracy", static_cast<float>(event.accuracy)}};
  file_->add(last_step_, scalars);
  file_->flush();
}

void ScalarLog::finish() {
  if (file_) file_->flush();
}

}  // namespace cohort::cli
