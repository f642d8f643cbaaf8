// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/cost_table.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "cohort/core/error.h"
#include "cohort/core/nearest.h"
#include "cohort/core/parse.h"

namespace cohort {
namespace {

constexpr std::string_view kHeader = "what,name,fixed_us,per_sample_us,gb_per_s,hidden";
constexpr size_t kCells = 6;

const LinkCost kNoCost;

// Six digits are more than any clock is worth.
std::string digits(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

void write_compute(std::ostream& out, std::string_view what, std::string_view name,
                   const ComputeCost& cost) {
  out << what << ',' << name << ',' << digits(cost.fixed * 1e6) << ','
      << digits(cost.per_sample * 1e6) << ",,\n";
}

void write_link(std::ostream& out, std::string_view what, std::string_view name,
                const LinkCost& cost) {
  out << what << ',' << name << ',' << digits(cost.latency * 1e6) << ",,";
  if (std::isfinite(cost.bytes_per_second)) out << digits(cost.bytes_per_second / 1e9);
  out << ',' << (cost.hidden ? "true" : "false") << '\n';
}

class CostReader {
 public:
  CostTable read(std::string_view text) {
    bool header = false;
    const auto lines = split(text, '\n');
    lines_ = static_cast<int64_t>(lines.size());
    for (const auto& line : lines) {
      ++number_;
      if (line.empty() || line[0] == '#') continue;
      if (!header && line != kHeader) refuse(line, text_of_header());
      if (header) read_row(line);
      header = true;
    }
    if (!header) refuse("", text_of_header());
    return std::move(costs_);
  }

 private:
  static std::string text_of_header() {
    return "a first line of " + std::string(kHeader);
  }

  [[noreturn]] void refuse(std::string_view found, const std::string& legal) const {
    throw ConfigError(text("[step.costs] line ", number_, ": '", found.substr(0, 40),
                           "'; legal: ", legal));
  }

  double number(const std::string& cell, double otherwise) const {
    if (cell.empty()) return otherwise;
    const auto value = try_parse_double(cell);
    if (!value || *value < 0) refuse(cell, "a number from 0");
    return *value;
  }

  void read_row(const std::string& line) {
    const auto cells = split(line, ',');
    if (cells.size() != kCells) refuse(line, text(kCells, " cells"));
    const std::string& what = cells[0];
    const ComputeCost compute{number(cells[2], 0) / 1e6, number(cells[3], 0) / 1e6};
    if (!cells[5].empty() && cells[5] != "true" && cells[5] != "false")
      refuse(cells[5], "true, false, or nothing");
    const LinkCost link{number(cells[2], 0) / 1e6,
                        number(cells[4], std::numeric_limits<double>::infinity()) * 1e9,
                        cells[5] != "false"};
    if (link.bytes_per_second == 0) refuse(cells[4], "GB/s above 0, or nothing");
    if (what == "forward")
      block(cells[1]).forward = compute;
    else if (what == "backward")
      block(cells[1]).backward = compute;
    else if (what == "recompute")
      block(cells[1]).recompute = compute;
    else if (what == "update")
      costs_.update = link;
    else if (what == "copy")
      costs_.copy = link;
    else if (what == "free")
      costs_.free = compute;
    else if (what == "commit")
      costs_.commit = compute;
    else if (what == "link")
      costs_.links[link_name(cells[1])] = link;
    else if (what == "samples")
      costs_.samples = number(cells[1], 1);
    else
      refuse(
          what,
          "forward, backward, recompute, free, commit, update, copy, link or samples");
  }

  // GROUP, or GROUP/Kind.
  const std::string& link_name(const std::string& cell) const {
    const auto slash = cell.find('/');
    if (cell.empty() || slash == 0) refuse(cell, "a group, GROUP/Kind, or *");
    if (slash == std::string::npos) return cell;
    const std::string kind = cell.substr(slash + 1);
    std::vector<std::string> legal;
    for (int k = 0; k < kActionKinds; ++k)
      legal.emplace_back(name_of(static_cast<ActionKind>(k)));
    if (std::find(legal.begin(), legal.end(), kind) == legal.end())
      refuse(cell, text("a kind of action behind /; nearest: ", nearest(kind, legal)));
    return cell;
  }

  BlockCost& block(const std::string& cell) {
    const auto index = try_parse_int(cell);
    // Every block has a row: a table is no larger than its text.
    if (!index || *index < 0 || *index >= lines_)
      refuse(cell, "a block's number, below the number of lines");
    if (static_cast<size_t>(*index) >= costs_.blocks.size())
      costs_.blocks.resize(*index + 1);
    return costs_.blocks[*index];
  }

  int number_ = 0;
  int64_t lines_ = 0;
  CostTable costs_;
};

}  // namespace

const LinkCost& CostTable::link(const std::string& group, ActionKind kind) const {
  for (const auto& name : {text(group, "/", name_of(kind)), group, std::string("*")}) {
    const auto found = links.find(name);
    if (found != links.end()) return found->second;
  }
  return kNoCost;
}

bool CostTable::hidden(const std::string& group) const {
  bool named = false;
  for (const auto& [name, cost] : links) {
    if (name != group && !name.starts_with(group + "/")) continue;
    named = true;
    if (!cost.hidden) return false;
  }
  const auto any = links.find("*");
  return named || any == links.end() || any->second.hidden;
}

void require_costs_of(const Schedule& schedule, const CostTable& costs) {
  int most = -1;
  for (const auto& role : schedule.roles) {
    for (const auto& action : role.actions) {
      most = std::max(most, action.block);
      const Group* const group = schedule.group_of(action.lane);
      if (group && &costs.link(group->name, action.kind) == &kNoCost)
        throw ConfigError(text("[step.costs] no row for ", name_of(action.kind),
                               " of group ", group->name, "; legal: a row link,",
                               group->name, " or link,*"));
    }
  }
  if (static_cast<size_t>(most + 1) != costs.blocks.size())
    throw ConfigError(text("[step.costs] ", costs.blocks.size(),
                           " blocks; legal: those of the step, which has ", most + 1));
}

CostTable guess_costs(std::span<const BlockSpec> blocks, double samples,
                      const MachineGuess& machine) {
  CostTable costs{.samples = samples};
  for (const auto& block : blocks) {
    double parameters = 0;
    for (const auto& parameter : block.parameters)
      parameters += static_cast<double>(parameter.numel());
    const double bytes = static_cast<double>(block.activation_bytes);
    const ComputeCost forward{
        .fixed = machine.action_latency,
        .per_sample = 2 * parameters / machine.flops +
                      bytes / std::max(samples, 1.0) / machine.memory_bytes};
    costs.blocks.push_back({.forward = forward,
                            .backward = {forward.fixed, 2 * forward.per_sample},
                            .recompute = forward});
  }
  // Reads weights, gradient and one state, writes two of them: five passes.
  costs.update = {.latency = machine.action_latency,
                  .bytes_per_second = machine.memory_bytes / 5};
  costs.copy = {.latency = machine.link_latency,
                .bytes_per_second = machine.memory_bytes};
  costs.links["*"] = {.latency = machine.link_latency,
                      .bytes_per_second = machine.link_bytes};
  return costs;
}

double ring_factor(ActionKind kind, int ranks) {
  if (kind == ActionKind::kMirror) return 1;  // one peer has all of it
  const double part = static_cast<double>(ranks - 1) / ranks;
  return kind == ActionKind::kReduce || kind == ActionKind::kFoldBuffers ? 2 * part
                                                                         : part;
}

std::string to_csv(const CostTable& costs) {
  std::ostringstream out;
  out << kHeader << "\nsamples," << digits(costs.samples) << ",,,,\n";
  for (size_t b = 0; b < costs.blocks.size(); ++b) {
    const std::string block = std::to_string(b);
    write_compute(out, "forward", block, costs.blocks[b].forward);
    write_compute(out, "backward", block, costs.blocks[b].backward);
    write_compute(out, "recompute", block, costs.blocks[b].recompute);
  }
  write_compute(out, "free", "", costs.free);
  write_compute(out, "commit", "", costs.commit);
  write_link(out, "update", "", costs.update);
  write_link(out, "copy", "", costs.copy);
  for (const auto& [group, cost] : costs.links) write_link(out, "link", group, cost);
  return out.str();
}

CostTable costs_from_csv(std::string_view text) { return CostReader().read(text); }

}  // namespace cohort
