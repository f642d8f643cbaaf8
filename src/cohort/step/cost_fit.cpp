// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/cost_fit.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/step/action_costs.h"

namespace cohort {
namespace {

// Points (x, seconds), and the line through them.
class TimedPoints {
 public:
  void add(double x, double y) { points_.push_back({x, y}); }
  bool empty() const { return points_.empty(); }

  struct Fit {
    double fixed = 0, slope = 0;
  };
  // `through_zero`: what to do where all points have one x.
  Fit fit(bool through_zero) const {
    double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (const auto& [x, y] : points_) {
      n += 1, sx += x, sy += y, sxx += x * x, sxy += x * y;
    }
    const double spread = n * sxx - sx * sx;
    if (spread <= 1e-12 * n * sxx)
      return through_zero && sx > 0 ? Fit{0, sy / sx} : Fit{sy / n, 0};
    double slope = std::max(0.0, (n * sxy - sx * sy) / spread);
    double fixed = (sy - slope * sx) / n;
    if (fixed < 0) fixed = 0, slope = sxy / sxx;
    return {fixed, slope};
  }

  ComputeCost compute() const {
    if (empty()) return {};
    const auto [fixed, slope] = fit(/*through_zero=*/true);
    return {.fixed = fixed, .per_sample = slope};
  }
  LinkCost link() const {
    if (empty()) return {};
    const auto [fixed, slope] = fit(/*through_zero=*/false);
    LinkCost cost{.latency = fixed};
    if (slope > 0) cost.bytes_per_second = 1 / slope;
    return cost;
  }

 private:
  struct Point {
    double x, y;
  };
  std::vector<Point> points_;
};

struct Lines {
  // By block.
  std::vector<TimedPoints> forward, backward, recompute, backward_input,
      backward_weight;
  TimedPoints update, copy, free, commit;
  struct Link {
    TimedPoints all;
    std::map<ActionKind, TimedPoints> kinds;
    bool hidden = true;
  };
  std::map<std::string, Link> links;  // by group, or "pp"
  std::map<std::string, Link> pairs;  // by link, "0>1"
  std::map<std::string, LinkCost> inner;

  TimedPoints& of_block(std::vector<TimedPoints>& lines, int block) {
    if (static_cast<size_t>(block) >= lines.size()) lines.resize(block + 1);
    return lines[block];
  }

  void add_own(const Schedule& schedule, const Action& action, double seconds,
               double samples) {
    const auto bytes = static_cast<double>(action.bytes);
    if (action.kind == ActionKind::kForward)
      of_block(forward, action.block).add(samples, seconds);
    if (action.kind == ActionKind::kBackward)
      of_block(backward, action.block).add(samples, seconds);
    if (action.kind == ActionKind::kRecompute)
      of_block(recompute, action.block).add(samples, seconds);
    if (action.kind == ActionKind::kBackwardInput)
      of_block(backward_input, action.block).add(samples, seconds);
    if (action.kind == ActionKind::kBackwardWeight)
      of_block(backward_weight, action.block).add(samples, seconds);
    if (action.kind == ActionKind::kUpdate) update.add(bytes, seconds);
    if (action.kind == ActionKind::kFree) free.add(0, seconds);
    if (action.kind == ActionKind::kCommit) commit.add(0, seconds);
    if (schedule.is_copy(action.lane)) copy.add(bytes, seconds);
  }

  // What a block computed, without the calls inside it that are known.
  double without_calls(const Schedule& schedule, const ActionCosts& known,
                       const Action& action, double seconds) {
    for (const auto& call : action.calls) {
      const LinkCost* const cost = known.find(call);
      inner[text(schedule.groups[call.group].name, "/", name_of(call.op))] =
          cost ? *cost : LinkCost();
      seconds -= known.seconds(call);
    }
    return std::max(seconds, 0.0);
  }

  // The k-th call of a lane is one, whichever ranks are in it.
  void add_calls(const ObservedStep& step, int lane) {
    struct Call {
      ActionKind kind;
      double bytes, seconds;
    };
    std::vector<Call> calls;
    const Group* const group = step.schedule.group_of(lane);
    const int ranks = group ? step.schedule.size_of(*group) : 2;
    for (size_t r = 0; r < step.times.size(); ++r) {
      const auto& actions = step.schedule.roles[r].actions;
      size_t k = 0;
      for (size_t i = 0; i < step.times[r].size(); ++i) {
        if (actions[i].lane != lane) continue;
        const double seconds = step.times[r][i].end - step.times[r][i].begin;
        const double bytes =
            static_cast<double>(actions[i].bytes) * ring_factor(actions[i].kind, ranks);
        // A link has one kind: what its two ends do is one transfer.
        const ActionKind kind = group ? actions[i].kind : ActionKind::kSend;
        if (k == calls.size()) calls.push_back({kind, bytes, seconds});
        calls[k].seconds = std::min(calls[k].seconds, seconds);
        ++k;
      }
    }
    const auto add_to = [&](Link& link) {
      link.hidden = step.hidden;
      for (const auto& call : calls) {
        link.all.add(call.bytes, call.seconds);
        link.kinds[call.kind].add(call.bytes, call.seconds);
      }
    };
    if (calls.empty()) return;
    add_to(links[group ? group->name : "pp"]);
    if (!group) add_to(pairs[step.schedule.name_of_lane(lane)]);
  }

  // Kinds and links have rows of their own where there are several.
  void write_links(CostTable& costs) const {
    const auto write = [&](const std::string& name, const Link& link,
                           const TimedPoints& line) {
      costs.links[name] = line.link();
      costs.links[name].hidden = link.hidden;
    };
    for (const auto& [group, link] : links) {
      write(group, link, link.all);
      if (link.kinds.size() < 2) continue;
      for (const auto& [kind, line] : link.kinds)
        write(text(group, "/", name_of(kind)), link, line);
    }
    for (const auto& [name, link] : pairs)
      if (pairs.size() > 1) write(name, link, link.all);
    for (const auto& [name, cost] : inner) costs.links[name] = cost;
  }

  size_t blocks() const {
    size_t most = 0;
    for (const auto* lines :
         {&forward, &backward, &recompute, &backward_input, &backward_weight})
      most = std::max(most, lines->size());
    return most;
  }

  // A whole backward that nobody ran takes as long as its halves.
  void write_block(size_t b, BlockCost& cost) const {
    const auto line =
        [&](const std::vector<TimedPoints>& lines) -> std::optional<ComputeCost> {
      if (b >= lines.size() || lines[b].empty()) return std::nullopt;
      return lines[b].compute();
    };
    cost.forward = line(forward).value_or(ComputeCost());
    cost.recompute = line(recompute).value_or(cost.forward);
    cost.backward_input = line(backward_input);
    cost.backward_weight = line(backward_weight);
    cost.backward = line(backward).value_or(
        ComputeCost{cost.input().fixed + cost.weight().fixed,
                    cost.input().per_sample + cost.weight().per_sample});
  }
};

}  // namespace

CostTable fit_costs(std::span<const ObservedStep> steps, const CostTable& known) {
  Lines lines;
  CostTable costs;
  for (const auto& step : steps) {
    const ActionCosts rows(step.schedule, known);
    costs.samples = step.samples;
    for (size_t r = 0; r < step.times.size(); ++r)
      for (size_t i = 0; i < step.times[r].size(); ++i) {
        const Action& action = step.schedule.roles[r].actions[i];
        const double seconds = step.times[r][i].end - step.times[r][i].begin;
        lines.add_own(step.schedule, action,
                      lines.without_calls(step.schedule, rows, action, seconds),
                      step.samples);
      }
    for (int lane = 0; lane < step.schedule.lanes(); ++lane) {
      const Channel::Kind kind = step.schedule.channels[lane].kind;
      if (kind == Channel::Kind::kGroup || kind == Channel::Kind::kLink)
        lines.add_calls(step, lane);
    }
  }
  costs.blocks.resize(lines.blocks());
  for (size_t b = 0; b < costs.blocks.size(); ++b)
    lines.write_block(b, costs.blocks[b]);
  costs.update = lines.update.link();
  costs.copy = lines.copy.link();
  costs.free = lines.free.compute();
  costs.commit = lines.commit.compute();
  lines.write_links(costs);
  return costs;
}

LinkCost fit_link(std::span<const TimedCall> calls) {
  TimedPoints line;
  for (const auto& call : calls) line.add(call.bytes, call.seconds);
  return line.link();
}

}  // namespace cohort
