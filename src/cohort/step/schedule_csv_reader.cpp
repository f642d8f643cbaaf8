// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "cohort/core/error.h"
#include "cohort/core/nearest.h"
#include "cohort/core/parse.h"
#include "cohort/step/csv_columns.h"
#include "cohort/step/csv_first_version.h"
#include "cohort/step/csv_old_copies.h"
#include "cohort/step/declare.h"
#include "cohort/step/schedule_csv.h"
#include "cohort/step/schedule_records.h"

namespace cohort::csv {
namespace {

constexpr int kMostSlices = 1 << 24;

class CsvReader {
 public:
  explicit CsvReader(std::string_view text) : rest_(text) {}

  ScheduleFile read() {
    while (next_line()) {
      if (columns_.empty())
        read_header();
      else
        read_row();
    }
    if (columns_.empty())
      throw ConfigError(
          text("[step.csv] no header; legal: a first line of ", join_columns()));
    finish();
    return std::move(file_);
  }

 private:
  // The next line that is neither empty nor a comment. Some comments are records.
  bool next_line() {
    while (!rest_.empty()) {
      line_ = rest_.substr(0, rest_.find('\n'));
      rest_.remove_prefix(std::min(rest_.size(), line_.size() + 1));
      ++number_;
      line_ = trim(line_);
      if (line_.starts_with("#@ ")) take_record(line_.substr(3));
      if (!line_.empty() && line_[0] != '#') return true;
    }
    return false;
  }

  // A file is of the second kind if its first record says so.
  void take_record(std::string_view record) {
    if (!columns_.empty())
      throw ConfigError(text("[step.csv] line ", number_,
                             ": a record behind the header; legal: before it"));
    if (version_ == 1 && !record.starts_with("version "))
      throw ConfigError(text("[step.csv] line ", number_,
                             ": a record before that of the version; legal: #@ "
                             "version number=2"));
    version_ = 2;
    const std::string kind(record.substr(0, record.find(' ')));
    const bool once = kind == "version" || kind == "mesh" || kind == "step";
    if (once && !seen_.insert(kind).second)
      throw ConfigError(text("[step.csv] line ", number_, ": a second record of ", kind,
                             "; legal: one"));
    try {
      read_record(record, file_.schedule);
    } catch (const RecordError& error) {
      throw ConfigError(text("[step.csv] line ", number_, ": ", error.what));
    }
  }

  std::string join_columns() const {
    std::string all;
    for (int c = 0; c < kStart; ++c)
      if (is_of_version(c, version_)) all += text(all.empty() ? "" : ",", kColumns[c]);
    return all;
  }

  [[noreturn]] void refuse(int column, std::string_view found,
                           const std::string& legal) const {
    throw ConfigError(text("[step.csv] line ", number_, ", column ", kColumns[column],
                           ": '", shown(found), "'; legal: ", legal));
  }

  void read_header() {
    if (version_ == 1 && line_.find(kColumns[kReads]) != line_.npos)
      throw ConfigError(text("[step.csv] line ", number_,
                             ": no records before this header; legal: those that the "
                             "file was written with, #@ version number=2 first"));
    for (const auto& name : split(line_, ',')) {
      const auto found = std::find(kColumns.begin(), kColumns.end(), name);
      const auto column = static_cast<int>(found - kColumns.begin());
      const bool legal =
          is_of_version(column, version_) || is_optional(column, version_);
      if (found == kColumns.end() || !legal || has(column))
        throw ConfigError(
            text("[step.csv] line ", number_, ": column '", shown(name), "'; nearest: ",
                 nearest(shown(name), std::span<const std::string_view>(kColumns)),
                 "; legal: ", join_columns(), ", each once"));
      columns_.push_back(column);
    }
    for (int c = 0; c < kStart; ++c)
      if (is_of_version(c, version_) && !has(c))
        throw ConfigError(text("[step.csv] line ", number_, ": column ", kColumns[c],
                               " is missing; legal: ", join_columns()));
    if (has(kStart) != has(kEnd))
      throw ConfigError(text("[step.csv] line ", number_,
                             ": one of start_us and end_us is missing; legal: both or "
                             "none"));
  }

  bool has(int column) const {
    return std::find(columns_.begin(), columns_.end(), column) != columns_.end();
  }

  void read_row() {
    const auto cells = split(line_, ',');
    if (cells.size() != columns_.size())
      throw ConfigError(text("[step.csv] line ", number_, ": ", cells.size(),
                             " cells; legal: ", columns_.size(), ", as in the header"));
    cells_.assign(kColumns.size(), "");
    for (size_t i = 0; i < cells.size(); ++i) cells_[columns_[i]] = cells[i];
    place_row();
    Action action{.kind = read_action_kind()};
    action.lane = static_cast<int>(number(kLane, 0, 1000));
    action.block = optional(kBlock);
    action.slice = optional(kSlice);
    for (const auto& item : split(cells_[kBuckets], ';'))
      action.buckets.push_back(item == "loss" ? kLossBucket : index(kBuckets, item));
    action.bytes = number(kBytes, 0, kHuge);
    action.scratch = number(kScratch, 0, kHuge);
    if (version_ == 1)
      memory_.back().push_back(
          {number(kTakes, 0, kMostHeld), number(kFrees, 0, kMostHeld)});
    else
      read_declared(action);
    for (const auto& item : split(cells_[kNeeds], ';'))
      action.needs.push_back(read_kind(kNeeds, item));
    read_waits(action);
    action.batch = optional(kBatch);
    if (version_ == 1) read_group(action);
    if (has(kStart)) read_times();
    file_.schedule.roles.back().actions.push_back(std::move(action));
  }

  // Those with a mark are actions of the step before.
  void read_waits(Action& action) {
    for (const auto& item : split(cells_[kWaits], ';')) {
      const bool before = version_ == 2 && item.starts_with('<');
      (before ? action.waits_before : action.waits)
          .push_back(index(kWaits, item.substr(before ? 1 : 0)));
    }
  }

  void read_times() {
    const ActionTime time{seconds(kStart), seconds(kEnd)};
    if (time.end < time.begin) refuse(kEnd, cells_[kEnd], "no less than start_us");
    file_.times.back().push_back(time);
  }

  void read_declared(Action& action) {
    const auto accesses = [&](int column, std::vector<Access>& all) {
      for (const auto& item : split(cells_[column], ';')) {
        const auto access = parse_access(item);
        if (!access) refuse(column, item, "values with ';', as in Act3/1.2@5=4000");
        all.push_back(*access);
      }
    };
    accesses(kReads, action.reads);
    accesses(kWrites, action.writes);
    for (const auto& item : split(cells_[kCalls], ';')) {
      const auto call = parse_call(item);
      if (!call) refuse(kCalls, item, "calls with ';', as in 0:AllReduce:4000");
      action.calls.push_back(*call);
    }
    lanes_.push_back({number_, action.lane, cells_[kGroup]});
  }

  // Rows of a role follow one another, and say the same of it.
  void place_row() {
    auto& roles = file_.schedule.roles;
    const int64_t here = static_cast<int64_t>(roles.size()) - 1;
    const int64_t role = number(kRoleColumn, std::max<int64_t>(here, 0), here + 1);
    if (role > here) {
      roles.push_back({.ranks = read_ranks()});
      roles.back().slices = static_cast<int>(number(kSlices, 1, kMostSlices));
      ranks_cell_ = cells_[kRanks];
      if (has(kStart)) file_.times.emplace_back();
      has_groups_.push_back(false);
      memory_.emplace_back();
    } else if (cells_[kRanks] != ranks_cell_) {
      refuse(kRanks, cells_[kRanks],
             text("'", ranks_cell_, "', as in the role's first row"));
    } else if (number(kSlices, 1, kMostSlices) != roles.back().slices) {
      refuse(kSlices, cells_[kSlices],
             text(roles.back().slices, ", as in the role's first row"));
    }
    const auto id = static_cast<int64_t>(roles.back().actions.size());
    number(kId, id, id);
  }

  // A rank has one role: all together have no more than the largest world.
  std::vector<int> read_ranks() {
    std::vector<int> ranks;
    for (const auto& item : split(cells_[kRanks], ';')) {
      const auto dash = item.find('-');
      const auto first = try_parse_int(item.substr(0, dash));
      const auto last =
          dash == std::string::npos ? first : try_parse_int(item.substr(dash + 1));
      const int previous = ranks.empty() ? -1 : ranks.back();
      if (!first || !last || *first <= previous || *last < *first ||
          *last >= kMostRanks)
        refuse(kRanks, cells_[kRanks], "ranks in ascending order, as in 0-3;6");
      if ((ranks_left_ -= *last - *first + 1) < 0)
        refuse(kRanks, cells_[kRanks], text("at most ", kMostRanks, " ranks in all"));
      for (int64_t r = *first; r <= *last; ++r) ranks.push_back(static_cast<int>(r));
    }
    if (ranks.empty()) refuse(kRanks, cells_[kRanks], "at least one rank");
    return ranks;
  }

  // Copies go when all is read, whatever they are called until then.
  ActionKind read_action_kind() {
    if (!is_old_copy(cells_[kKind])) return read_kind(kKind, cells_[kKind]);
    const auto& roles = file_.schedule.roles;
    copies_.push_back(
        {roles.size() - 1, roles.back().actions.size(), cells_[kKind] == "Fetch"});
    return ActionKind::kFree;
  }

  ActionKind read_kind(int column, const std::string& name) const {
    std::vector<std::string> legal;
    for (int k = 0; k < kActionKinds; ++k) {
      const auto kind = static_cast<ActionKind>(k);
      if (name_of(kind) == name) return kind;
      legal.emplace_back(name_of(kind));
    }
    refuse(column, name,
           text("a kind of action; nearest: ", nearest(shown(name), legal)));
  }

  int64_t number(int column, int64_t low, int64_t high) const {
    const auto value = try_parse_int(cells_[column]);
    if (!value || *value < low || *value > high)
      refuse(column, cells_[column],
             low == high ? std::to_string(low)
                         : text("a number from ", low, " to ", high));
    return *value;
  }

  int index(int column, const std::string& item) const {
    const auto value = try_parse_int(item);
    if (!value || *value < 0 || *value > kMostIndex)
      refuse(column, cells_[column],
             text("numbers from 0 to ", kMostIndex, " with ';'"));
    return static_cast<int>(*value);
  }

  int optional(int column) const {
    return cells_[column].empty() ? kNone : index(column, cells_[column]);
  }

  double seconds(int column) const {
    const auto value = try_parse_double(cells_[column]);
    if (!value || !(*value >= 0 && *value <= kMostMicroseconds))
      refuse(column, cells_[column],
             text("microseconds from 0 to ", static_cast<int64_t>(kMostMicroseconds)));
    return *value * 1e-6;
  }

  // Commit names all groups, in the order of their lanes; others name their own.
  void read_group(const Action& action) {
    if (action.kind != ActionKind::kCommit) {
      pending_.push_back({number_, action.lane, cells_[kGroup]});
      return;
    }
    std::vector<FileGroup> groups;
    for (const auto& item : split(cells_[kGroup], ';'))
      groups.push_back(group_of(item));
    const bool first =
        std::find(has_groups_.begin(), has_groups_.end(), true) == has_groups_.end();
    if (first) {
      groups_ = groups;
      groups_line_ = number_;
      groups_cell_ = cells_[kGroup];
    }
    if (cells_[kGroup] != groups_cell_)
      refuse(kGroup, cells_[kGroup],
             text("'", groups_cell_, "', as in the first Commit"));
    has_groups_.back() = true;
  }

  FileGroup group_of(const std::string& item) const {
    const auto group = parse_group(item);
    if (!group) refuse(kGroup, item, "NAME:SIZExSTRIDE, as in dp:4x1");
    return *group;
  }

  void finish() {
    if (file_.schedule.roles.empty())
      throw ConfigError("[step.csv] no action; legal: one row per action");
    drop_copies(file_, memory_, copies_);
    version_ == 1 ? finish_old() : check_lanes();
  }

  void check_lanes() {
    const Schedule& schedule = file_.schedule;
    for (const char* kind : {"mesh", "step"})
      if (!seen_.contains(kind))
        throw ConfigError(
            text("[step.csv] no record of the ", kind, "; legal: a line #@ ", kind));
    for (const auto& row : lanes_) {
      number_ = row.line;
      if (row.lane >= schedule.lanes())
        refuse(kLane, std::to_string(row.lane),
               text("one of ", schedule.lanes(), " channels"));
      const Channel& channel = schedule.channels[row.lane];
      if (channel.kind == Channel::Kind::kGroup &&
          channel.group >= static_cast<int>(schedule.groups.size()))
        throw ConfigError(text("[step.csv] channel ", row.lane, " is of group ",
                               channel.group, "; legal: one of ",
                               schedule.groups.size()));
      const std::string legal = lane_text(schedule, row.lane);
      if (row.cell != legal)
        refuse(kGroup, row.cell, text("'", legal, "', the channel of lane ", row.lane));
    }
  }

  void finish_old() {
    Schedule& schedule = file_.schedule;
    for (size_t r = 0; r < has_groups_.size(); ++r)
      if (!has_groups_[r])
        throw ConfigError(text("[step.csv] role ", r, " has no Commit; legal: one"));
    for (const auto& row : pending_) check_group(row);
    int64_t slices = 0;
    int world = 0;
    for (const auto& role : schedule.roles) {
      world = std::max(world, role.ranks.back() + 1);
      slices += static_cast<int64_t>(role.ranks.size()) * role.slices;
    }
    if (const auto stray = place_groups(schedule, world, groups_)) {
      number_ = groups_line_;
      refuse(kGroup, stray->text(),
             text("groups of neighbours, of ranks as far apart, or of all ",
                  schedule.world(), ", as in dp:4x1;shard:2x1;replicate:2x2"));
    }
    if (slices > kMostIndex)
      throw ConfigError(
          text("[step.csv] ", slices, " slices; legal: at most ", kMostIndex));
    schedule.slices = static_cast<int>(slices);
    declare_by_kinds(schedule);
    apply_memory(schedule, memory_);
  }

  struct GroupCell {
    int line;
    int lane;
    std::string cell;
  };
  void check_group(const GroupCell& row) {
    const bool named = row.lane >= 1 && static_cast<size_t>(row.lane) <= groups_.size();
    const std::string legal = named ? groups_[row.lane - 1].text() : "";
    number_ = row.line;
    if (row.cell != legal)
      refuse(kGroup, row.cell, text("'", legal, "', the group of lane ", row.lane));
  }

  static constexpr int64_t kHuge = int64_t{1} << 60;
  static constexpr int64_t kMostHeld = int64_t{1} << 58;
  static constexpr int kMostIndex = 1 << 30;
  // A day: what is more would not come back to the nanosecond.
  static constexpr double kMostMicroseconds = 86'400e6;

  std::string_view rest_, line_;
  int number_ = 0;
  std::vector<int> columns_;        // as the header has them
  std::vector<std::string> cells_;  // this row's, by column
  std::string ranks_cell_, groups_cell_;
  int64_t ranks_left_ = kMostRanks;
  std::vector<FileGroup> groups_;
  int groups_line_ = 0;
  std::vector<bool> has_groups_;                // by role
  std::vector<GroupCell> pending_, lanes_;      // cells of the group of a row
  std::vector<std::vector<OldMemory>> memory_;  // by role, action
  std::vector<OldCopy> copies_;
  int version_ = 1;
  std::set<std::string> seen_;  // kinds of records
  ScheduleFile file_;
};

}  // namespace
}  // namespace cohort::csv

namespace cohort {

ScheduleFile from_csv(std::string_view text) { return csv::CsvReader(text).read(); }

}  // namespace cohort
