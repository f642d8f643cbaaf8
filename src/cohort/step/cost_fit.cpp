// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/cost_fit.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cohort/core/error.h"

namespace cohort {
namespace {

// Points (x, seconds), and the line through them.
class Line {
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
  std::vector<Line> forward, backward, recompute;  // by block
  Line update, copy, free, commit;
  struct Link {
    Line all;
    std::map<ActionKind, Line> kinds;
    bool hidden = true;
  };
  std::map<std::string, Link> links;  // by group

  Line& of_block(std::vector<Line>& lines, int block) {
    if (static_cast<size_t>(block) >= lines.size()) lines.resize(block + 1);
    return lines[block];
  }

  void add_own(const Action& action, double seconds, double samples) {
    const auto bytes = static_cast<double>(action.bytes);
    if (action.kind == ActionKind::kForward)
      of_block(forward, action.block).add(samples, seconds);
    if (action.kind == ActionKind::kBackward)
      of_block(backward, action.block).add(samples, seconds);
    if (action.kind == ActionKind::kRecompute)
      of_block(recompute, action.block).add(samples, seconds);
    if (action.kind == ActionKind::kUpdate) update.add(bytes, seconds);
    if (action.kind == ActionKind::kFree) free.add(0, seconds);
    if (action.kind == ActionKind::kCommit) commit.add(0, seconds);
    if (action.kind == ActionKind::kOffload || action.kind == ActionKind::kFetch)
      copy.add(bytes, seconds);
  }

  // The k-th call of a group is one, whoever is in it.
  void add_calls(const ObservedStep& step, size_t group) {
    struct Call {
      ActionKind kind;
      double bytes, seconds;
    };
    std::vector<Call> calls;
    const Group& what = step.schedule.groups[group];
    const int ranks = step.schedule.size_of(what);
    for (size_t r = 0; r < step.times.size(); ++r) {
      const auto& actions = step.schedule.roles[r].actions;
      size_t k = 0;
      for (size_t i = 0; i < step.times[r].size(); ++i) {
        if (step.schedule.group_of(actions[i].lane) != &what) continue;
        const double seconds = step.times[r][i].end - step.times[r][i].begin;
        const double bytes =
            static_cast<double>(actions[i].bytes) * ring_factor(actions[i].kind, ranks);
        if (k == calls.size()) calls.push_back({actions[i].kind, bytes, seconds});
        calls[k].seconds = std::min(calls[k].seconds, seconds);
        ++k;
      }
    }
    if (calls.empty()) return;
    Link& link = links[what.name];
    link.hidden = step.hidden;
    for (const auto& call : calls) {
      link.all.add(call.bytes, call.seconds);
      link.kinds[call.kind].add(call.bytes, call.seconds);
    }
  }

  // Kinds have rows of their own where there are several.
  void write_links(CostTable& costs) const {
    const auto write = [&](const std::string& name, const Link& link,
                           const Line& line) {
      costs.links[name] = line.link();
      costs.links[name].hidden = link.hidden;
    };
    for (const auto& [group, link] : links) {
      write(group, link, link.all);
      if (link.kinds.size() < 2) continue;
      for (const auto& [kind, line] : link.kinds)
        write(text(group, "/", name_of(kind)), link, line);
    }
  }
};

}  // namespace

CostTable fit_costs(std::span<const ObservedStep> steps) {
  Lines lines;
  CostTable costs;
  for (const auto& step : steps) {
    costs.samples = step.samples;
    for (size_t r = 0; r < step.times.size(); ++r)
      for (size_t i = 0; i < step.times[r].size(); ++i)
        lines.add_own(step.schedule.roles[r].actions[i],
                      step.times[r][i].end - step.times[r][i].begin, step.samples);
    for (size_t g = 0; g < step.schedule.groups.size(); ++g) lines.add_calls(step, g);
  }
  costs.blocks.resize(lines.forward.size());
  for (size_t b = 0; b < costs.blocks.size(); ++b) {
    costs.blocks[b].forward = lines.forward[b].compute();
    if (b < lines.backward.size())
      costs.blocks[b].backward = lines.backward[b].compute();
    costs.blocks[b].recompute =
        b < lines.recompute.size() && !lines.recompute[b].empty()
            ? lines.recompute[b].compute()
            : costs.blocks[b].forward;
  }
  costs.update = lines.update.link();
  costs.copy = lines.copy.link();
  costs.free = lines.free.compute();
  costs.commit = lines.commit.compute();
  lines.write_links(costs);
  return costs;
}

}  // namespace cohort
