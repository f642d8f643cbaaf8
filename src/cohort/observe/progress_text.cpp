// SPDX-License-Identifier: Apache-2.0
#include "cohort/observe/progress_text.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/core/parse.h"

namespace cohort {
namespace {

// Left eighths of a block, and the whole one.
constexpr const char* kEighths[] = {"",       "\u258f", "\u258e", "\u258d", "\u258c",
                                    "\u258b", "\u258a", "\u2589", "\u2588"};

double share_done(const ProgressState& state) {
  if (state.total <= 0) return 0;
  return std::clamp(static_cast<double>(state.done) / static_cast<double>(state.total),
                    0.0, 1.0);
}

// A bar of `columns` columns whose first `share` is filled. `pad` fills the rest.
std::string bar(double share, int columns, bool ascii, bool pad) {
  share = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) : 0.0;
  const int parts = ascii ? 1 : 8;
  const auto filled = static_cast<int>(std::lround(share * columns * parts));
  std::string out;
  for (int i = 0; i < filled / parts; ++i) out += ascii ? "#" : kEighths[8];
  int used = filled / parts;
  if (filled % parts > 0) {
    out += kEighths[filled % parts];
    ++used;
  }
  if (pad) out.append(static_cast<size_t>(columns - used), ' ');
  return out;
}

std::string percent(double share) { return format_fixed(std::floor(100 * share), 0); }

std::string times(const ProgressState& state) {
  std::string out = format_clock(state.elapsed_s);
  if (state.total > 0) {
    const auto left =
        static_cast<double>(std::max<int64_t>(state.total - state.done, 0));
    const double seconds = left == 0 ? 0 : left / state.steps_per_second;
    out.append("<").append(format_clock(seconds));
  }
  return out;
}

std::string count(const ProgressState& state) {
  if (state.total <= 0) return std::to_string(state.done);
  return text(state.done, "/", state.total);
}

// What is known of rate and loss.
std::vector<std::string> figures(const ProgressState& state) {
  std::vector<std::string> out;
  if (state.samples_per_second > 0) {
    out.push_back(format_quantity(state.samples_per_second) + " samples/s");
  }
  if (!std::isnan(state.loss)) out.push_back("loss " + format_quantity(state.loss));
  return out;
}

}  // namespace

std::string progress_line(const ProgressState& state, const TextStyle& style) {
  std::string head = state.label.empty() ? "" : state.label + ": ";
  auto facts = figures(state);
  facts.insert(facts.begin(), times(state));
  const std::string tail = text(count(state), " [", join(facts, ", "), "]");
  std::string line;
  if (state.total > 0) {
    const std::string share = percent(share_done(state));
    head += std::string(3 - share.size(), ' ') + share + "%";
    const int room = style.width - static_cast<int>(head.size() + tail.size()) - 3;
    line = head + (room < 3 ? std::string(" ")
                            : text("|", bar(share_done(state), room, style.ascii, true),
                                   "| "));
    if (room >= 3) return line + tail;
  } else {
    line = head;
  }
  line += tail;
  // Only bytes of ASCII so far but for the label, which a caller keeps short.
  return line.substr(0, static_cast<size_t>(std::max(style.width, 0)));
}

std::string plain_line(const ProgressState& state,
                       std::chrono::system_clock::time_point now) {
  std::vector<std::string> parts{format_time(now)};
  if (!state.label.empty()) parts.push_back(state.label);
  parts.push_back("step " + count(state));
  if (state.total > 0) parts.push_back(text("(", percent(share_done(state)), "%)"));
  auto facts = figures(state);
  std::ranges::reverse(facts);  // the loss first: it is what one looks for
  parts.insert(parts.end(), facts.begin(), facts.end());
  parts.push_back(times(state));
  return join(parts, " ");
}

std::string split_table(const StepSplit& split, const TextStyle& style) {
  const std::pair<const char*, double> rows[] = {{"data", split.data},
                                                 {"forward", split.forward},
                                                 {"backward", split.backward},
                                                 {"waiting", split.wait},
                                                 {"update", split.update}};
  const int bar_columns = std::clamp(style.width - 29, 0, 30);
  const auto pad_left = [](const std::string& value, size_t width) {
    return std::string(width - std::min(width, value.size()), ' ') + value;
  };
  std::string out;
  for (const auto& [name, seconds] : rows) {
    const double share = split.sum() > 0 ? seconds / split.sum() : 0;
    const std::string label(name);
    std::string line = label + std::string(10 - label.size(), ' ') +
                       pad_left(format_duration(seconds), 8) + "  " +
                       pad_left(format_fixed(100 * share, 1), 5) + " %  " +
                       bar(share, bar_columns, style.ascii, false);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out + "step      " + pad_left(format_duration(split.sum()), 8) + "\n";
}

}  // namespace cohort
