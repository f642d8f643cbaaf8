// SPDX-License-Identifier: Apache-2.0
#include "cli/scalar_log.h"

#include <optional>
#include <vector>

#include "cohort/core/error.h"

namespace cohort::cli {
namespace {

void add_known_scalar(std::vector<Scalar>& scalars, const char* tag,
                      std::optional<double> value) {
  if (value) scalars.push_back({tag, static_cast<float>(*value)});
}

}  // namespace

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
  std::vector<Scalar> scalars = {
      {"loss_metrics/global_avg_loss", static_cast<float>(event.loss)},
      {"lr", static_cast<float>(event.rate)},
      {"throughput(samples/s)", static_cast<float>(event.samples_per_second)}};
  add_known_scalar(scalars, "throughput(tokens/s)", event.tokens_per_second);
  file_->add(event.step, scalars);
  file_->flush();
}

void ScalarLog::valid(const ValidEvent& event) {
  if (!open()) return;
  std::vector<Scalar> scalars = {{"validation/loss", static_cast<float>(event.loss)}};
  add_known_scalar(scalars, "validation/accuracy", event.accuracy);
  add_known_scalar(scalars, "validation/perplexity", event.perplexity);
  for (const auto& [name, value] : event.named)
    scalars.push_back({"validation/" + name, static_cast<float>(value)});
  file_->add(last_step_, scalars);
  file_->flush();
}

void ScalarLog::finish() {
  if (open()) file_->flush();
}

}  // namespace cohort::cli
