// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/cost_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "cohort/core/error.h"
#include "cohort/core/nearest.h"
#include "cohort/core/parse.h"

namespace cohort {
namespace {

constexpr std::string_view kHeader = "what,name,fixed_us,per_sample_us,gb_per_s,hidden";
constexpr size_t kCells = 6;

const std::string kBetweenNodes = "@nodes";
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

void slow_down(BlockCost& block, double times) {
  block.change_all([times](ComputeCost& cost) {
    cost.fixed *= times;
    cost.per_sample *= times;
  });
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
      if (header) {
        if (number_ < lines_) ++whole_rows_;  // with the end of its line
        read_row(line);
        ++rows_;
      }
      header = true;
    }
    if (!header) refuse("", text_of_header());
    if (rows_ == 0) refuse("", "rows behind the header");
    require_all();
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

  // More are fine: a user may add some. Tables of old do not say how many they have.
  void require_all() const {
    if (whole_rows_ >= promised_rows_) return;
    throw ConfigError(text("[step.costs] the table is cut off: ", whole_rows_,
                           " whole rows behind 'rows,", promised_rows_,
                           "'; legal: that many, each with the end of its line, or "
                           "no such row"));
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
    else if (what == "backward_input")
      block(cells[1]).backward_input = compute;
    else if (what == "backward_weight")
      block(cells[1]).backward_weight = compute;
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
    else if (what == "rows")
      promise(count(cells[1]));
    else if (what == "samples")
      costs_.samples = number(cells[1], 1);
    else if (what == "ranks_per_node")
      costs_.ranks_per_node = count(cells[1]);
    else
      refuse(what,
             "forward, backward, backward_input, backward_weight, recompute, free, "
             "commit, update, copy, link, rows, samples or ranks_per_node");
  }

  void promise(int rows) {
    promised_rows_ = rows;
    whole_rows_ = 0;  // those behind it count
  }

  int count(const std::string& cell) const {
    const auto value = try_parse_int(cell);
    if (!value || *value < 1 || *value > std::numeric_limits<int>::max())
      refuse(cell, "a whole number from 1");
    return static_cast<int>(*value);
  }

  // NAME, NAME/Kind, and either with @nodes.
  const std::string& link_name(const std::string& cell) const {
    std::string_view name = cell;
    if (name.ends_with(kBetweenNodes)) name.remove_suffix(kBetweenNodes.size());
    const auto slash = name.find('/');
    if (name.empty() || slash == 0 || name.find('@') != std::string_view::npos)
      refuse(cell,
             "a group, a link such as 0>1, or *; then /Kind, then @nodes, where one is "
             "meant");
    if (slash == std::string_view::npos) return cell;
    const std::string kind(name.substr(slash + 1));
    std::vector<std::string> legal;
    for (int op = 0; op < InnerCall::kOps; ++op)
      legal.emplace_back(name_of(static_cast<CallOp>(op)));
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
  int64_t rows_ = 0, whole_rows_ = 0, promised_rows_ = 0;
  CostTable costs_;
};

}  // namespace

const LinkCost* CostTable::find(const Route& route, std::string_view call) const {
  const auto row = [&](std::string key) -> const LinkCost* {
    const auto found = links.find(key);
    return found == links.end() ? nullptr : &found->second;
  };
  const auto find_behind = [&](const std::string& level) -> const LinkCost* {
    const auto rows_of = [&](const std::string& name) {
      const LinkCost* const own = row(name + '/' + std::string(call) + level);
      return own ? own : row(name + level);
    };
    for (const auto& name : route.names)
      if (const LinkCost* const found = rows_of(name)) return found;
    return rows_of("*");
  };
  const LinkCost* found = route.crosses_nodes ? find_behind(kBetweenNodes) : nullptr;
  return found ? found : find_behind("");
}

const LinkCost& CostTable::link(const std::string& group, ActionKind kind) const {
  const LinkCost* const found = find({{group}}, name_of(kind));
  return found ? *found : kNoCost;
}

bool CostTable::hidden(const Route& route) const {
  std::vector<std::string> names = route.names;
  names.emplace_back("*");
  // By the rows of the first of these names that has any.
  const auto hidden_behind = [&](const std::string& level) {
    for (const auto& name : names) {
      bool named = false, hidden = true;
      for (const auto& [key, cost] : links) {
        if (key.ends_with(kBetweenNodes) == level.empty()) continue;
        if (key != name + level && !key.starts_with(name + '/')) continue;
        named = true;
        hidden &= cost.hidden;
      }
      if (named) return hidden;
    }
    return true;
  };
  if (!route.crosses_nodes) return hidden_behind("");
  // Unless a row is for all its calls, some of them have those of one node.
  const bool covered = std::any_of(names.begin(), names.end(), [&](const auto& name) {
    return links.contains(name + kBetweenNodes);
  });
  return hidden_behind(kBetweenNodes) && (covered || hidden_behind(""));
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

CostTable at_places(CostTable costs, std::span<const Stage> stages,
                    std::span<const double> speeds) {
  if (speeds.empty()) return costs;
  const double fastest = *std::ranges::max_element(speeds);
  for (const auto& stage : stages)
    for (const int block : stage.blocks)
      if (static_cast<size_t>(block) < costs.blocks.size())
        slow_down(costs.blocks[block], fastest / speeds[stage.place]);
  return costs;
}

double ring_factor(ActionKind kind, int ranks) {
  const double part = static_cast<double>(ranks - 1) / ranks;
  switch (kind) {
    case ActionKind::kMirror:  // one peer has all of it
    case ActionKind::kSend:
    case ActionKind::kRecv:
    case ActionKind::kBroadcast:
      return 1;
    case ActionKind::kReduce:
    case ActionKind::kReduceUpdate:  // it sums one way and writes the other
    case ActionKind::kFoldBuffers:
      return 2 * part;
    default:
      return part;
  }
}

double ring_factor(CallOp op, int ranks) {
  const double part = static_cast<double>(ranks - 1) / ranks;
  return op == CallOp::kAllReduce ? 2 * part : part;
}

std::string to_csv(const CostTable& costs) {
  const bool links_alone = costs.blocks.empty();
  std::ostringstream out;
  if (!links_alone || costs.samples != 1 || costs.links.empty())
    out << "samples," << digits(costs.samples) << ",,,,\n";
  if (costs.ranks_per_node > 0)
    out << "ranks_per_node," << costs.ranks_per_node << ",,,,\n";
  for (size_t b = 0; b < costs.blocks.size(); ++b) {
    const std::string block = std::to_string(b);
    write_compute(out, "forward", block, costs.blocks[b].forward);
    write_compute(out, "backward", block, costs.blocks[b].backward);
    write_compute(out, "recompute", block, costs.blocks[b].recompute);
    if (const auto& input = costs.blocks[b].backward_input)
      write_compute(out, "backward_input", block, *input);
    if (const auto& weight = costs.blocks[b].backward_weight)
      write_compute(out, "backward_weight", block, *weight);
  }
  const auto is_there = [&](const auto& cost) {
    return !links_alone || !(cost == std::decay_t<decltype(cost)>());
  };
  if (is_there(costs.free)) write_compute(out, "free", "", costs.free);
  if (is_there(costs.commit)) write_compute(out, "commit", "", costs.commit);
  if (is_there(costs.update)) write_link(out, "update", "", costs.update);
  if (is_there(costs.copy)) write_link(out, "copy", "", costs.copy);
  for (const auto& [group, cost] : costs.links) write_link(out, "link", group, cost);
  const std::string rows = out.str();
  return text(kHeader, "\nrows,", std::ranges::count(rows, '\n'), ",,,,\n", rows);
}

void take_links(const CostTable& given, CostTable& costs) {
  costs.links = given.links;
  costs.ranks_per_node = given.ranks_per_node;
  if (given.free != ComputeCost()) costs.free = given.free;
  if (given.commit != ComputeCost()) costs.commit = given.commit;
  if (given.update != LinkCost()) costs.update = given.update;
  if (given.copy != LinkCost()) costs.copy = given.copy;
}

CostTable costs_from_csv(std::string_view text) { return CostReader().read(text); }

}  // namespace cohort
