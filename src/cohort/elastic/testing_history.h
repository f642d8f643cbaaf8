// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cohort/core/file.h"
#include "cohort/core/testing_folder.h"
#include "cohort/data/sampler.h"
#include "cohort/elastic/history_record.h"

// For tests: histories written record by record, right or wrong.
namespace cohort::test {

class HistoryFolder : public testing::Test {
 protected:
  TempFolder folder_;
  std::string path_ = folder_ / "history.log";
};

// 10 samples in batches of 4: steps of 4, 4 and 2 samples per epoch.
inline HistoryRun small_run() {
  return {.seed = 7,
          .samples = 10,
          .batch = 4,
          .steps_per_epoch = 3,
          .base = 0,
          .slices = 2,
          .exact = true,
          .hash_of = "weights"};
}

inline HistoryWorld small_world(int generation = 0, int64_t committed = 0,
                                int64_t started_us = 1000) {
  return {.started_us = started_us,
          .generation = generation,
          .ranks = 2,
          .committed = committed,
          .layout = "dp=2"};
}

// As an undisturbed run notes it: loss and hash are functions of the step.
inline HistoryStep small_step(int64_t step, int generation = 0) {
  const auto batch = static_cast<int>((step - 1) % 3);
  return {.step = step,
          .generation = generation,
          .epoch = static_cast<int32_t>((step - 1) / 3),
          .first = 4 * batch,
          .count = batch == 2 ? 2 : 4,
          .afterwards = false,
          .loss = 1.0 / static_cast<double>(step),
          .hash = RecordedHash{100 + static_cast<uint64_t>(step)}};
}

// The same, with what its ranks drew.
inline HistoryStep drawn_step(int64_t step, int generation = 0) {
  const Sampler sampler({.size = 10, .batch = 4, .slices = 2, .seed = 7});
  HistoryStep record = small_step(step, generation);
  record.drawn = sampler.batch_sum(sampler.position(step - 1));
  return record;
}

// As an older program noted its hash.
inline HistoryStep stream_step(int64_t step, int generation = 0) {
  HistoryStep record = small_step(step, generation);
  record.hash->kind = HashKind::kStream;
  return record;
}

// A run of `steps` steps in one world.
inline std::vector<HistoryRecord> small_history(int64_t steps) {
  std::vector<HistoryRecord> records = {small_run(), small_world()};
  for (int64_t step = 1; step <= steps; ++step) records.emplace_back(small_step(step));
  return records;
}

inline std::string bytes_of(const std::vector<HistoryRecord>& records) {
  std::string bytes(kHistoryMagic);
  uint64_t previous = 0;
  for (const auto& record : records) {
    bytes += history_bytes(record, previous);
    std::memcpy(&previous, bytes.data() + bytes.size() - 8, 8);
  }
  return bytes;
}

// Without the syncs of write_file_atomically(), and of some file systems when a file is
// replaced by cutting it: tests write thousands of them.
inline void put_file(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

inline void write_history(const std::string& path,
                          const std::vector<HistoryRecord>& records) {
  put_file(path, bytes_of(records));
}

inline std::vector<HistoryRecord> read_history(const std::string& path) {
  const std::string bytes = read_file(path);
  HistoryReader reader(bytes, path);
  std::vector<HistoryRecord> records;
  while (const auto item = reader.next()) {
    EXPECT_EQ(item->damage, "");
    records.push_back(item->record);
  }
  return records;
}

}  // namespace cohort::test
