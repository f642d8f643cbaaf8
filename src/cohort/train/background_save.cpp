// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/background_save.h"

#include <utility>

#include "cohort/core/error.h"

namespace cohort {

SaveOutcome outcome_of(int64_t step, const std::function<SaveReport()>& save) {
  SaveOutcome outcome{.step = step};
  try {
    const SaveReport report = save();
    outcome.path = report.path;
    outcome.remark = report.remark;
  } catch (const CommError&) {
  } catch (const std::exception& error) {
    outcome.failure = error.what();
  }
  return outcome;
}

void BackgroundSave::start(int64_t step, std::function<SaveReport()> save) {
  COHORT_CHECK(!busy_, "a save is under way");
  join();
  outcome_.reset();
  busy_ = true;
  thread_ = std::thread([this, step, save = std::move(save)]() mutable {
    outcome_ = outcome_of(step, save);
    save = nullptr;  // lets go of the pages before anyone may want them
    busy_ = false;
    busy_.notify_all();
  });
}

std::optional<SaveOutcome> BackgroundSave::take_outcome() {
  if (busy_) return std::nullopt;
  return std::exchange(outcome_, std::nullopt);
}

void BackgroundSave::join() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace cohort
