// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/schedule_csv.h"

#include <algorithm>
#include <sstream>

#include "cohort/core/format.h"
#include "cohort/step/checks/role_view.h"
#include "cohort/step/csv_columns.h"
#include "cohort/step/schedule_records.h"

namespace cohort::csv {
namespace {

template <typename T, typename Write>
std::string list_text(const std::vector<T>& items, Write&& write) {
  std::string out;
  for (const T& item : items) {
    if (!out.empty()) out += ';';
    out += write(item);
  }
  return out;
}

std::string bucket_text(int bucket) {
  return bucket == kLossBucket ? "loss" : std::to_string(bucket);
}

// Those of the step before have a mark.
std::string waits_text(const Action& action) {
  const std::string here =
      list_text(action.waits, [](int wait) { return std::to_string(wait); });
  const std::string before =
      list_text(action.waits_before, [](int wait) { return text('<', wait); });
  return here + (here.empty() || before.empty() ? "" : ";") + before;
}

void write_comments(std::ostream& out, const Schedule& schedule) {
  out << "# a step of " << schedule.world() << " ranks and " << schedule.slices
      << " slices, shard level " << schedule.shard << (schedule.exact ? ", exact" : "")
      << (schedule.elastic ? ", elastic" : "") << '\n';
  write_records(out, schedule);
}

void write_row(std::ostream& out, const Schedule& schedule, const Action& action) {
  const auto number = [&](int value) {
    if (value != kNone) out << value;
    out << ',';
  };
  out << name_of(action.kind) << ',' << action.lane << ','
      << lane_text(schedule, action.lane) << ',';
  number(action.block);
  number(action.slice);
  out << list_text(action.buckets, bucket_text) << ',' << action.bytes << ','
      << action.scratch << ','
      << list_text(action.needs, [](ActionKind need) { return name_of(need); }) << ','
      << list_text(action.calls, call_text) << ','
      << list_text(action.reads, access_text) << ','
      << list_text(action.writes, access_text) << ',' << waits_text(action);
}

bool has_batches(const Schedule& schedule) {
  for (const auto& role : schedule.roles)
    for (const auto& action : role.actions)
      if (action.batch != kNone) return true;
  return false;
}

}  // namespace
}  // namespace cohort::csv

namespace cohort {

std::string to_csv(const Schedule& schedule, const StepTimes& times) {
  using namespace csv;
  std::ostringstream out;
  write_comments(out, schedule);
  const bool batches = has_batches(schedule);
  for (int c = 0; c < static_cast<int>(kColumns.size()); ++c)
    if (c >= kStart ? !times.empty() : c == kBatch ? batches : is_of_version(c, 2))
      out << (c > 0 ? "," : "") << kColumns[c];
  out << '\n';
  for (size_t r = 0; r < schedule.roles.size(); ++r) {
    const Role& role = schedule.roles[r];
    const std::string front =
        text(r, ",", ranks_text(role.ranks), ",", role.slices, ",");
    for (size_t i = 0; i < role.actions.size(); ++i) {
      out << front << i << ',';
      write_row(out, schedule, role.actions[i]);
      if (batches) out << ',';
      if (const int batch = role.actions[i].batch; batch != kNone) out << batch;
      if (!times.empty())
        out << ',' << format_fixed(times[r][i].begin * 1e6, 3) << ','
            << format_fixed(times[r][i].end * 1e6, 3);
      out << '\n';
    }
  }
  return out.str();
}

}  // namespace cohort
