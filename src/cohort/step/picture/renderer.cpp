// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/picture/renderer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/step/checks/checks.h"
#include "cohort/step/checks/role_view.h"
#include "cohort/step/picture/action_look.h"
#include "cohort/step/picture/legend.h"
#include "cohort/step/picture/picture_style.h"
#include "cohort/step/picture/rank_rows.h"
#include "cohort/step/picture/stage_rows.h"
#include "cohort/step/picture/svg.h"

namespace cohort {
namespace {

constexpr double kLeft = 132;
constexpr double kLeftOfStages = 96;  // their names stand above them
constexpr double kStageName = 16;
constexpr double kStageGap = 13;
constexpr double kPanelGap = 24;  // all that is foretold, then all that was measured
constexpr double kRight = 28;
constexpr double kTop = 84;
constexpr double kBandGap = 26;
constexpr double kPairGap = 12;
constexpr double kAxis = 30;
constexpr double kLeastWidth = 960;
constexpr double kMostWidth = 5000;
constexpr double kPixelsAnAction = 7;
constexpr double kPixelsADigit = 5.8;
constexpr std::string_view kDot = " &#183; ";

// The place of rows on the page. Ranks of a role look alike: the role is drawn once.
struct DrawnPlace {
  std::string name, under;  // a stage's: as SVG, on one line
  int role = 0;
  bool measured = false;
  double y = 0;
};

double nice_step(double seconds, int most) {
  const double rough = seconds / most;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough) return factor * power;
  return 10 * power;
}

class Picture {
 public:
  Picture(const Schedule& schedule, const StepTimes& predicted,
          const PictureOptions& options)
      : schedule_(schedule),
        predicted_(predicted),
        options_(options),
        has_stages_(schedule.mesh.size(Axis::kPipe) > 1),
        left_(has_stages_ ? kLeftOfStages : kLeft) {
    make_rows();
    if (has_stages_)
      make_stages();
    else
      make_places();
    make_scale();
  }

  std::string draw() {
    const double width = left_ + scale_.width + kRight;
    const Legend legend(schedule_, has_memory(), width);
    const double height = bottom_ + kAxis + legend.height();
    const std::string size =
        text(svg_number(width), "\" height=\"", svg_number(height), "\" viewBox=\"0 0 ",
             svg_number(width), " ", svg_number(height));
    svg_.raw(
        text("<svg xmlns=\"http://www.w3.org/2000/svg\" "
             "xmlns:xlink=\"http://www.w3.org/1999/xlink\" role=\"img\" width=\"",
             size, "\">\n"));
    svg_.raw(text("<title>", svg_escape(title()), "</title>\n", kPictureStyle));
    if (needs_stage_style()) svg_.raw(kStageStyle);
    svg_.rect({0, 0, width, height}, "class=\"page\"");
    svg_.label(24, 34, "class=\"title\"", title());
    svg_.label(24, 55, "class=\"under\"", under_title());
    draw_grid();
    for (const auto& place : places_) draw_place(place);
    legend.draw(svg_, bottom_ + kAxis);
    svg_.raw("</svg>\n");
    return svg_.text();
  }

 private:
  void make_rows() {
    for (int role = 0; role < static_cast<int>(schedule_.roles.size()); ++role) {
      rows_.emplace(std::pair(role, false), rows_of(role, predicted_));
      if (!options_.measured.empty())
        rows_.emplace(std::pair(role, true), rows_of(role, options_.measured));
    }
  }

  std::unique_ptr<PictureRows> rows_of(int role, const StepTimes& times) const {
    if (has_stages_)
      return std::make_unique<StageRows>(schedule_, role, times[role],
                                         step_seconds(times));
    return std::make_unique<RankRows>(schedule_, role, times[role]);
  }

  bool needs_stage_style() const {
    if (has_stages_ || !inner_groups(schedule_).empty()) return true;
    for (const auto& role : schedule_.roles)
      for (const auto& action : role.actions)
        if (action.kind == ActionKind::kBackwardWeight) return true;
    return false;
  }

  bool has_memory() const {
    return std::any_of(rows_.begin(), rows_.end(),
                       [](const auto& rows) { return !rows.second->memory().empty(); });
  }

  // From the first stage to the last, whatever the order of roles.
  void make_stages() {
    std::vector<int> roles(schedule_.roles.size());
    for (size_t r = 0; r < roles.size(); ++r) roles[r] = static_cast<int>(r);
    std::sort(roles.begin(), roles.end(), [&](int a, int b) {
      return schedule_.roles[a].ranks.front() < schedule_.roles[b].ranks.front();
    });
    double y = kTop;
    for (const bool measured : {false, true}) {
      if (measured && options_.measured.empty()) continue;
      if (measured) y += kPanelGap;
      for (const int role : roles) {
        places_.push_back(
            {stage_name(role), stage_facts(role, measured), role, measured, y});
        y += kStageName + rows_.at({role, measured})->height() + kStageGap;
      }
    }
    bottom_ = y - kStageGap + 8;
  }

  std::string stage_name(int role) const {
    const auto& ranks = schedule_.roles[role].ranks;
    return text("stage ", schedule_.mesh.coordinate(ranks.front(), Axis::kPipe), kDot,
                ranks.size() == 1 ? "rank " : "ranks ", ranks_text(ranks));
  }

  std::string stage_facts(int role, bool measured) const {
    const Role& what = schedule_.roles[role];
    std::string words;
    if (!options_.measured.empty())
      words += text(measured ? "measured" : "predicted", kDot);
    const auto runs = block_runs(what);
    for (size_t r = 0; r < runs.size(); ++r)
      words += text(runs[r].text(), r + 1 < runs.size() ? " and " : kDot);
    const double idle = idle_share(role, measured ? options_.measured : predicted_);
    words += text(slices_text(role), what.ranks.size() == 1 ? "" : " each", kDot,
                  "idle ", format_fixed(100 * idle, 0), " %");
    const double sent = count_volume(schedule_, what).total().sent;
    return sent > 0 && !measured ? text(words, kDot, "sends ", format_bytes(sent))
                                 : words;
  }

  // What the rank sends that sends most.
  double most_sent() const {
    double most = 0;
    for (const auto& role : schedule_.roles)
      most = std::max(most, count_volume(schedule_, role).total().sent);
    return most;
  }

  // The part of the whole step in which a rank of the role computes nothing.
  double idle_share(int role, const StepTimes& times) const {
    const double step = step_seconds(times);
    if (step <= 0) return 0;
    return 1 - use_of(schedule_.roles[role], times[role]).compute / step;
  }

  double idle_share_of_all() const {
    double sum = 0;
    for (size_t r = 0; r < schedule_.roles.size(); ++r)
      sum += idle_share(static_cast<int>(r), predicted_) *
             static_cast<double>(schedule_.roles[r].ranks.size());
    return sum / schedule_.world();
  }

  std::string slices_text(int role) const {
    const int count = schedule_.roles[role].slices;
    return text(count, count == 1 ? " slice" : " slices");
  }

  void make_places() {
    double y = kTop;
    const auto add = [&](std::string name, std::string under, int role) {
      for (bool measured : {false, true}) {
        if (measured && options_.measured.empty()) continue;
        std::string what = under;
        if (!options_.measured.empty()) what = measured ? "measured" : "predicted";
        places_.push_back({measured ? "" : name, what, role, measured, y});
        const bool pair = !options_.measured.empty() && !measured;
        y += rows_.at({role, measured})->height() + (pair ? kPairGap : kBandGap);
      }
    };
    if (schedule_.world() <= options_.most_ranks) {
      for (int rank = 0; rank < schedule_.world(); ++rank) {
        const int role =
            static_cast<int>(&schedule_.role_of(rank) - schedule_.roles.data());
        add(text("rank ", rank), slices_text(role), role);
      }
    } else {
      for (int r = 0; r < static_cast<int>(schedule_.roles.size()); ++r) {
        const size_t ranks = schedule_.roles[r].ranks.size();
        add(text(ranks, ranks == 1 ? " rank" : " ranks"),
            text(slices_text(r), ranks == 1 ? "" : " each"), r);
      }
    }
    bottom_ = y - kBandGap + 8;
  }

  void make_scale() {
    scale_.seconds =
        std::max({step_seconds(predicted_), step_seconds(options_.measured), 1e-9});
    size_t most = 0;
    for (const auto& role : schedule_.roles) most = std::max(most, role.actions.size());
    const double wanted =
        has_stages_ ? width_for_numbers() : static_cast<double>(most) * kPixelsAnAction;
    scale_.width = std::clamp(wanted, kLeastWidth, kMostWidth);
    for (const auto& [key, rows] : rows_)
      for (const auto& point : rows->memory())
        scale_.bytes = std::max(scale_.bytes, point.bytes);
  }

  // So that most forwards have room for the number of their slice.
  double width_for_numbers() const {
    std::vector<double> forwards;
    for (size_t r = 0; r < schedule_.roles.size(); ++r)
      for (const auto& turn : slice_turns(schedule_.roles[r], predicted_[r]))
        if (turn.kind == ActionKind::kForward)
          forwards.push_back(turn.end - turn.begin);
    if (forwards.empty()) return 0;
    const auto low = forwards.begin() + static_cast<int64_t>(forwards.size() / 4);
    std::nth_element(forwards.begin(), low, forwards.end());
    const size_t digits =
        std::max<size_t>(2, std::to_string(schedule_.slices - 1).size());
    const double pixels = static_cast<double>(digits) * kPixelsADigit + 0.9;
    return std::ceil(scale_.seconds / *low * pixels);
  }

  std::string title() const {
    return options_.title.empty() ? std::string("A training step") : options_.title;
  }

  std::string under_title() const {
    size_t actions = 0;
    RoleUse sum;
    for (size_t r = 0; r < schedule_.roles.size(); ++r) {
      const RoleUse use = use_of(schedule_.roles[r], predicted_[r]);
      actions = std::max(actions, schedule_.roles[r].actions.size());
      sum.communication += use.communication;
      sum.hidden += use.hidden;
    }
    std::string words = text("step ", format_duration(step_seconds(predicted_)));
    if (!options_.measured.empty())
      words += text(" predicted, ", format_duration(step_seconds(options_.measured)),
                    " measured");
    if (has_stages_)
      words += text("  |  idle ", format_fixed(100 * idle_share_of_all(), 0), " %");
    if (has_memory())
      words += text("  |  peak ", format_bytes(static_cast<double>(scale_.bytes)),
                    " per rank");
    if (const double sent = most_sent(); !has_stages_ && sent > 0)
      words += text("  |  sends ", format_bytes(sent), " per rank");
    words += "  |  ";
    if (has_stages_) words += text(schedule_.mesh.size(Axis::kPipe), " stages, ");
    words += text(schedule_.world(), schedule_.world() == 1 ? " rank, " : " ranks, ",
                  schedule_.slices, schedule_.slices == 1 ? " slice, " : " slices, ",
                  actions, " actions each");
    if (sum.communication > 0)
      words += text("  |  ", format_fixed(100 * sum.hidden / sum.communication, 0),
                    " % of communication under computation");
    return words;
  }

  void draw_grid() {
    const double step = nice_step(scale_.seconds, static_cast<int>(scale_.width / 95));
    const double foot = bottom_ + 6;
    for (int k = 0; k * step <= scale_.seconds * (1 + 1e-9); ++k) {
      const double x = left_ + scale_.x(k * step);
      svg_.line(x, kTop - 8, x, foot, "class=\"grid\"");
      svg_.label(x, foot + 14, "class=\"soft mid\"",
                 k == 0 ? std::string("0") : format_duration(k * step));
    }
    svg_.line(left_, foot, left_ + scale_.width, foot, "class=\"axis\"");
  }

  void draw_name(const DrawnPlace& place) {
    if (has_stages_) {
      svg_.raw(text("<text x=\"24\" y=\"", svg_number(place.y + 10),
                    "\" class=\"name\">", place.name, " <tspan class=\"part\">&#183; ",
                    place.under, "</tspan></text>\n"));
      return;
    }
    svg_.label(24, place.y + 11, "class=\"name\"", place.name);
    svg_.label(24, place.y + (place.name.empty() ? 11 : 25), "class=\"soft\"",
               place.under);
  }

  void draw_place(const DrawnPlace& place) {
    const auto key = std::pair(place.role, place.measured);
    const std::string id = text("role", place.role, place.measured ? "m" : "p");
    const std::string shift =
        text("translate(", svg_number(left_), " ",
             svg_number(place.y + (has_stages_ ? kStageName : 0)), ")");
    draw_name(place);
    if (drawn_[key]) {
      svg_.raw(text("<use xlink:href=\"#", id, "\" transform=\"", shift, "\"/>\n"));
      return;
    }
    drawn_[key] = true;
    svg_.raw(text("<g transform=\"", shift, "\"><g id=\"", id, "\">\n"));
    rows_.at(key)->draw(svg_, scale_);
    rows_.at(key)->draw_names(svg_);
    svg_.raw("</g></g>\n");
  }

  const Schedule& schedule_;
  const StepTimes& predicted_;
  const PictureOptions& options_;
  const bool has_stages_;  // rows are roles at places along a pipeline
  const double left_;      // where time begins
  // By role, and whether measured.
  std::map<std::pair<int, bool>, std::unique_ptr<PictureRows>> rows_;
  std::map<std::pair<int, bool>, bool> drawn_;
  std::vector<DrawnPlace> places_;
  Scale scale_;
  double bottom_ = 0;
  Svg svg_;
};

}  // namespace

std::string render_svg(const Schedule& schedule, const StepTimes& predicted,
                       const PictureOptions& options) {
  return Picture(schedule, predicted, options).draw();
}

}  // namespace cohort
