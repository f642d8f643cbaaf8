// SPDX-License-Identifier: Apache-2.0
#include "cli/history_command.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <ostream>

#include "cohort/core/error.h"
#include "cohort/core/exit_code.h"
#include "cohort/core/file.h"
#include "cohort/core/format.h"
#include "cohort/core/hash.h"
#include "cohort/core/json.h"
#include "cohort/elastic/history_check.h"

namespace cohort::cli {
namespace {

constexpr int kHolds = 0;
constexpr int kBroken = 1;           // as of every command that compares
constexpr int kNothing = kExitData;  // neither: the files have not what it takes
constexpr size_t kShownLines = 10;   // breaches shown: the first tell what happened

std::string time_text(int64_t microseconds) {
  return format_time(
      std::chrono::system_clock::time_point(std::chrono::microseconds(microseconds)));
}

// A run's folder stands for the history in it.
std::string history_in(const std::string& path) {
  return std::filesystem::is_directory(path) ? path + "/history.log" : path;
}

std::string counted(int64_t count, const char* noun) {
  return text(count, " ", noun, count == 1 ? "" : "s");
}

// Words of a record that are not ours may hold anything.
std::string printable(std::string words) {
  std::replace_if(
      words.begin(), words.end(), [](unsigned char c) { return c < 32 || c == 127; },
      '?');
  return words;
}

// A record as people read it, and as programs do. Epochs are counted from 1, as train
// does.
struct Shown {
  std::string line;
  JsonObject object;
};

RawJson hash_json(const std::optional<uint64_t>& hash) {
  return hash ? RawJson{json_text(hex16(*hash))} : RawJson{};
}

RawJson hash_json(const std::optional<RecordedHash>& hash) {
  return hash ? hash_json(std::optional(hash->value)) : RawJson{};
}

RawJson kind_json(const std::optional<RecordedHash>& hash) {
  return hash ? RawJson{json_text(std::string(hash_kind_name(hash->kind)))} : RawJson{};
}

// ", hash ...": the usual kind needs no name.
std::string hash_text(const char* what, const std::optional<RecordedHash>& hash) {
  if (!hash) return "";
  const bool usual = hash->kind == HashKind::kPieces;
  return text(", ", what, " ", hex16(hash->value),
              usual ? "" : text(" (", hash_kind_name(hash->kind), ")"));
}

Shown shown(const HistoryRun& run) {
  return {text("run       seed ", run.seed, ", ", run.samples, " samples, batch ",
               run.batch, ", ", run.slices, " slices, ", run.steps_per_epoch,
               " steps per epoch", run.exact ? ", exact" : "",
               run.base > 0 ? text(", from step ", run.base, " on") : ""),
          JsonObject()
              .add("record", "run")
              .add("seed", run.seed)
              .add("samples", run.samples)
              .add("batch", run.batch)
              .add("slices", run.slices)
              .add("steps_per_epoch", run.steps_per_epoch)
              .add("base", run.base)
              .add("exact", run.exact)
              .add("hash_of", run.hash_of)};
}

Shown shown(const HistoryWorld& world) {
  const std::string started = time_text(world.started_us);
  return {text("world     generation ", world.generation, ", ", world.ranks, " ranks, ",
               printable(world.layout), ", at step ", world.committed, ", command of ",
               started),
          JsonObject()
              .add("record", "world")
              .add("generation", world.generation)
              .add("ranks", world.ranks)
              .add("layout", world.layout)
              .add("step", world.committed)
              .add("started", started)};
}

Shown shown(const HistoryStep& step) {
  const std::string loss = step.loss ? json_text(*step.loss) : "";
  return {
      text("step      ", step.step, ", epoch ", step.epoch + 1, ", samples ",
           step.first, "..", step.first + step.count - 1,
           step.loss ? ", loss " + loss : "", hash_text("hash", step.hash),
           step.drawn ? text(", drew ", step.drawn->count, " with sum ",
                             hex16(step.drawn->sum))
                      : "",
           step.afterwards ? ", noted afterwards" : ""),
      JsonObject()
          .add("record", "step")
          .add("step", step.step)
          .add("generation", step.generation)
          .add("epoch", step.epoch + 1)
          .add("first", step.first)
          .add("count", step.count)
          .add("loss", step.loss ? RawJson{loss} : RawJson{})
          .add("hash", hash_json(step.hash))
          .add("hash_kind", kind_json(step.hash))
          .add("drawn", step.drawn ? RawJson{json_text(step.drawn->count)} : RawJson{})
          .add("drawn_sum",
               hash_json(step.drawn ? std::optional(step.drawn->sum) : std::nullopt))
          .add("afterwards", step.afterwards)};
}

Shown shown(const HistoryRollback& rollback) {
  return {text("rollback  from step ", rollback.from, " to ", rollback.to,
               rollback.damaged ? ", damaged: " : ": ", printable(rollback.why)),
          JsonObject()
              .add("record", "rollback")
              .add("from", rollback.from)
              .add("to", rollback.to)
              .add("why", rollback.why)
              .add("damaged", rollback.damaged)};
}

Shown shown(const HistoryEnd& end) {
  return {text("end       at step ", end.step,
               end.signal == 0 ? "" : text(", stopped by signal ", end.signal),
               hash_text("weights", end.weights_hash)),
          JsonObject()
              .add("record", "end")
              .add("step", end.step)
              .add("signal", end.signal)
              .add("weights_hash", hash_json(end.weights_hash))
              .add("hash_kind", kind_json(end.weights_hash))};
}

Shown shown(const HistoryReader::Item& item) {
  if (item.damage.empty())
    return std::visit([](const auto& record) { return shown(record); }, item.record);
  return {text("damaged   record ", item.index, ": ", item.damage),
          JsonObject()
              .add("record", "damaged")
              .add("index", item.index)
              .add("what", item.damage)};
}

void tell_json(const HistoryReport& report, std::ostream& out) {
  JsonArray breaches;
  for (const auto& breach : report.breaches) breaches.add(breach);
  out << JsonObject()
             .add("holds", report.holds())
             .add("records", report.records)
             .add("commands", report.commands)
             .add("worlds", report.worlds)
             .add("steps", report.steps)
             .add("epochs", report.epochs)
             .add("steps_drawn", report.steps_drawn)
             .add("steps_not_drawn", report.steps_not_drawn)
             .add("epochs_drawn", report.epochs_drawn)
             .add("rollbacks", report.rollbacks)
             .add("steps_undone", report.steps_undone)
             .add("steps_again", report.steps_again)
             .add("steps_compared", report.steps_compared)
             .add("steps_shared", report.steps_shared)
             .add("values_compared", report.values_compared)
             .add("hashes_apart", report.hashes_apart)
             .add("torn_bytes", report.torn_bytes)
             .add("breaches", RawJson{breaches.text()})
             .add("nothing", report.nothing)
             .text()
      << std::endl;
}

// Each property with the facts it was proved on: none is no proof.
void tell_facts(const HistoryReport& report, bool with_other, std::ostream& out) {
  const auto facts = [&](const char* what, int64_t count, const std::string& words) {
    out << "  " << what << ": " << (count > 0 ? words : "nothing to compare") << "\n";
  };
  facts("in order", report.steps, counted(report.steps, "step"));
  facts("samples as drawn", report.steps_drawn,
        text(counted(report.steps_drawn, "step"), ", ",
             counted(report.epochs_drawn, "whole epoch")));
  if (report.steps_not_drawn > 0)
    out << "  samples by the number of the step alone: "
        << counted(report.steps_not_drawn, "step")
        << " (an older program noted them, whoever knew was lost, or the file was "
           "cut)\n";
  facts("generations", report.worlds, counted(report.worlds, "world"));
  if (report.steps_again > 0 || report.steps_compared > 0)
    facts("equal bits of a step", report.steps_compared,
          text(counted(report.steps_compared, "comparison"), ", ",
               counted(report.steps_again, "step"), " made again"));
  if (report.hashes_apart > 0)
    out << "  not compared: " << counted(report.hashes_apart, "step")
        << " whose hashes are of two kinds (an older program noted the one)\n";
  if (with_other)
    facts("equal in both", report.values_compared,
          text(counted(report.values_compared, "value"), " at ",
               counted(report.steps_shared, "step")));
}

void tell(const HistoryReport& report, bool with_other, std::ostream& out) {
  out << counted(report.steps, "step") << ", " << counted(report.epochs, "whole epoch")
      << ", " << counted(report.worlds, "world") << " of "
      << counted(report.commands, "command") << ", "
      << counted(report.rollbacks, "rollback") << " ("
      << counted(report.steps_undone, "step") << ")\n";
  tell_facts(report, with_other, out);
  if (report.torn_bytes > 0)
    out << "the last record was cut short (" << report.torn_bytes
        << " bytes of it): its writer was killed\n";
  for (size_t i = 0; i < std::min(kShownLines, report.breaches.size()); ++i)
    out << report.breaches[i] << "\n";
  if (report.breaches.size() > kShownLines)
    out << "and " << report.breaches.size() - kShownLines << " more\n";
  if (report.holds())
    out << "holds" << std::endl;
  else if (!report.breaches.empty())
    out << "does not hold" << std::endl;
  else
    out << "nothing to compare: " << report.nothing << std::endl;
}

}  // namespace

int verify_history(const HistoryArgs& args, std::ostream& out) {
  const HistoryReport report =
      args.other.empty()
          ? cohort::verify_history(history_in(args.path))
          : cohort::verify_history(history_in(args.path), history_in(args.other));
  args.json ? tell_json(report, out) : tell(report, !args.other.empty(), out);
  if (!report.breaches.empty()) return kBroken;
  return report.holds() ? kHolds : kNothing;
}

int show_history(const HistoryArgs& args, std::ostream& out) {
  const std::string path = history_in(args.path);
  const std::string bytes = read_file(path);
  HistoryReader reader(bytes, path);
  std::deque<std::string> lines;
  bool whole = true;
  while (const auto item = reader.next()) {
    whole = whole && item->damage.empty();
    const Shown record = shown(*item);
    lines.push_back(args.json ? record.object.text() : record.line);
    if (args.last > 0 && static_cast<int64_t>(lines.size()) > args.last)
      lines.pop_front();
    if (args.last > 0) continue;
    out << lines.front() << "\n";
    lines.clear();
  }
  for (const auto& one : lines) out << one << "\n";
  out.flush();
  return whole ? kHolds : kBroken;
}

}  // namespace cohort::cli
