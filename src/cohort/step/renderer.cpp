// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/renderer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/step/band.h"
#include "cohort/step/checks/role_view.h"
#include "cohort/step/svg.h"

namespace cohort {
namespace {

constexpr double kLeft = 132;
constexpr double kRight = 28;
constexpr double kTop = 84;
constexpr double kBandGap = 26;
constexpr double kPairGap = 12;
constexpr double kAxis = 30;
constexpr double kLegend = 64;
constexpr double kLeastWidth = 960;
constexpr double kMostWidth = 5000;
constexpr double kPixelsAnAction = 7;

constexpr std::string_view kStyle = R"svg(<style>
text { font: 10px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: #1f2328; }
.title { font-size: 17px; font-weight: 600; }
.under { font-size: 12px; fill: #59636e; }
.name { font-size: 12px; font-weight: 600; }
.soft { fill: #59636e; }
.small { font-size: 9.5px; }
.end { text-anchor: end; }
.mid { text-anchor: middle; }
.mark { text-anchor: middle; pointer-events: none; }
.page { fill: #ffffff; }
.lane { fill: #f3f5f7; }
.box { stroke: #ffffff; stroke-width: 0.5; }
.through { pointer-events: none; }
.grid { stroke: #d8dde3; stroke-width: 1; }
.axis { stroke: #9aa4af; stroke-width: 1; }
.memory { fill: #b9c6d6; stroke: #6b7f97; stroke-width: 1; }
.state { stroke: #59636e; stroke-width: 1; stroke-dasharray: 3 3; }
.peak { fill: #d1242f; stroke: #ffffff; stroke-width: 1; }
.onlight { fill: #1b1f24; }
.ondark { fill: #ffffff; }
.hatch { stroke: #d3d9e0; stroke-width: 1.5; }
.again { stroke: #ffffff; stroke-width: 1.5; stroke-opacity: 0.75; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .under, .soft { fill: #9198a1; } .page { fill: #0d1117; }
  .lane { fill: #171c23; } .box { stroke: #0d1117; } .grid { stroke: #2a313a; }
  .axis { stroke: #656d77; } .memory { fill: #33465c; stroke: #7d93ad; }
  .state { stroke: #9198a1; } .peak { stroke: #0d1117; } .onlight { fill: #1b1f24; }
  .hatch { stroke: #232a33; }
}
</style>
<defs>
<pattern id="idle" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line x1="0" y1="0" x2="0" y2="6" class="hatch"/></pattern>
<pattern id="again" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><line x1="0" y1="0" x2="0" y2="5" class="again"/></pattern>
</defs>
)svg";

// A band's place on the page. Ranks of a role look alike: the role is drawn once.
struct DrawnPlace {
  std::string name, under;
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
      : schedule_(schedule), predicted_(predicted), options_(options) {
    make_bands();
    make_places();
    make_scale();
  }

  std::string draw() {
    const double width = kLeft + scale_.width + kRight;
    const double height = bottom_ + kAxis + kLegend;
    const std::string size =
        text(svg_number(width), "\" height=\"", svg_number(height), "\" viewBox=\"0 0 ",
             svg_number(width), " ", svg_number(height));
    svg_.raw(
        text("<svg xmlns=\"http://www.w3.org/2000/svg\" "
             "xmlns:xlink=\"http://www.w3.org/1999/xlink\" role=\"img\" width=\"",
             size, "\">\n"));
    svg_.raw(text("<title>", svg_escape(title()), "</title>\n", kStyle));
    svg_.rect({0, 0, width, height}, "class=\"page\"");
    svg_.label(24, 34, "class=\"title\"", title());
    svg_.label(24, 55, "class=\"under\"", under_title());
    draw_grid();
    for (const auto& place : places_) draw_place(place);
    draw_legend();
    svg_.raw("</svg>\n");
    return svg_.text();
  }

 private:
  void make_bands() {
    for (size_t r = 0; r < schedule_.roles.size(); ++r) {
      const int role = static_cast<int>(r);
      bands_.emplace(std::pair(role, false), Band(schedule_, role, predicted_[r]));
      if (!options_.measured.empty())
        bands_.emplace(std::pair(role, true),
                       Band(schedule_, role, options_.measured[r]));
    }
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
        y += bands_.at({role, measured}).height() + (pair ? kPairGap : kBandGap);
      }
    };
    const auto slices = [&](int role) {
      const int count = schedule_.roles[role].slices;
      return text(count, count == 1 ? " slice" : " slices");
    };
    if (schedule_.world() <= options_.most_ranks) {
      for (int rank = 0; rank < schedule_.world(); ++rank) {
        const int role =
            static_cast<int>(&schedule_.role_of(rank) - schedule_.roles.data());
        add(text("rank ", rank), slices(role), role);
      }
    } else {
      for (int r = 0; r < static_cast<int>(schedule_.roles.size()); ++r) {
        const size_t ranks = schedule_.roles[r].ranks.size();
        add(text(ranks, ranks == 1 ? " rank" : " ranks"),
            text(slices(r), ranks == 1 ? "" : " each"), r);
      }
    }
    bottom_ = y - kBandGap + 8;
  }

  void make_scale() {
    scale_.seconds =
        std::max({step_seconds(predicted_), step_seconds(options_.measured), 1e-9});
    size_t most = 0;
    for (const auto& role : schedule_.roles) most = std::max(most, role.actions.size());
    scale_.width = std::clamp(static_cast<double>(most) * kPixelsAnAction, kLeastWidth,
                              kMostWidth);
    for (const auto& [key, band] : bands_)
      for (const auto& point : band.memory())
        scale_.bytes = std::max(scale_.bytes, point.bytes);
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
    words += text("  |  peak ", format_bytes(static_cast<double>(scale_.bytes)),
                  " a rank  |  ", schedule_.world(),
                  schedule_.world() == 1 ? " rank, " : " ranks, ", schedule_.slices,
                  schedule_.slices == 1 ? " slice, " : " slices, ", actions,
                  " actions a rank");
    if (sum.communication > 0)
      words += text("  |  ", format_fixed(100 * sum.hidden / sum.communication, 0),
                    " % of communication under computation");
    return words;
  }

  void draw_grid() {
    const double step = nice_step(scale_.seconds, static_cast<int>(scale_.width / 95));
    const double foot = bottom_ + 6;
    for (int k = 0; k * step <= scale_.seconds * (1 + 1e-9); ++k) {
      const double x = kLeft + scale_.x(k * step);
      svg_.line(x, kTop - 8, x, foot, "class=\"grid\"");
      svg_.label(x, foot + 14, "class=\"soft mid\"",
                 k == 0 ? std::string("0") : format_duration(k * step));
    }
    svg_.line(kLeft, foot, kLeft + scale_.width, foot, "class=\"axis\"");
  }

  void draw_place(const DrawnPlace& place) {
    const auto key = std::pair(place.role, place.measured);
    const std::string id = text("role", place.role, place.measured ? "m" : "p");
    const std::string shift =
        text("translate(", svg_number(kLeft), " ", svg_number(place.y), ")");
    svg_.label(24, place.y + 11, "class=\"name\"", place.name);
    svg_.label(24, place.y + (place.name.empty() ? 11 : 25), "class=\"soft\"",
               place.under);
    if (drawn_[key]) {
      svg_.raw(text("<use xlink:href=\"#", id, "\" transform=\"", shift, "\"/>\n"));
      return;
    }
    drawn_[key] = true;
    svg_.raw(text("<g transform=\"", shift, "\"><g id=\"", id, "\">\n"));
    bands_.at(key).draw(svg_, scale_);
    bands_.at(key).draw_names(svg_);
    svg_.raw("</g></g>\n");
  }

  // One swatch after another; returns where the next begins.
  double swatch(double x, double y, const std::string& fill, const std::string& words) {
    svg_.rect({x, y - 9, 14, 11}, text("rx=\"2\" ", fill));
    svg_.label(x + 19, y, "class=\"soft\"", words);
    return x + 19 + static_cast<double>(words.size()) * 5.6 + 18;
  }

  void draw_legend() {
    const double y = bottom_ + kAxis + 20;
    double x = 24;
    int slices = 1;
    for (const auto& role : schedule_.roles) slices = std::max(slices, role.slices);
    const auto fill = [](Colour colour) {
      return text("fill=\"", colour.text(), "\"");
    };
    svg_.label(x, y, "class=\"soft\"", "colours");
    x += 52;
    for (int s = 0; s < std::min(slices, 8); ++s)
      x = swatch(x, y, fill(colour_of_slice(s)), text("slice ", s));
    if (slices > 8) svg_.label(x, y, "class=\"soft\"", "and so on, again");
    draw_kinds(y + 22);
  }

  void draw_kinds(double y) {
    double x = 24;
    svg_.label(x, y, "class=\"soft\"", "shades");
    x += 52;
    std::map<ActionKind, bool> seen;
    for (const auto& role : schedule_.roles)
      for (const auto& action : role.actions) seen[action.kind] = true;
    for (const auto& [kind, there] : seen) {
      if (kind == ActionKind::kFree || kind == ActionKind::kCommit) continue;
      Action sample{.kind = kind, .slice = 0};
      if (kind == ActionKind::kReduce) sample.slice = kNone;
      const double from = x;
      x = swatch(x, y, text("fill=\"", colour_of(sample).text(), "\""),
                 std::string(name_of(kind)));
      if (kind == ActionKind::kRecompute)
        svg_.rect({from, y - 9, 14, 11}, "fill=\"url(#again)\"");
    }
    const double from = x;
    x = swatch(x, y, "class=\"lane\"", "idle");
    svg_.rect({from, y - 9, 14, 11}, "fill=\"url(#idle)\"");
    swatch(x, y, "class=\"memory\"", "memory held (dashed: between steps)");
  }

  const Schedule& schedule_;
  const StepTimes& predicted_;
  const PictureOptions& options_;
  std::map<std::pair<int, bool>, Band> bands_;  // by role, and whether measured
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
