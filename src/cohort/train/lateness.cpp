// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/lateness.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/core/format.h"

namespace cohort {
namespace {

// A lateness is named if it is so much of the time of a step, and more than a
// thousandth of a second, which a scheduler takes at times.
constexpr double kWorthNaming = 0.15;
constexpr double kLeastSeconds = 1e-3;

struct Late {
  double seconds = 0;  // in all
  double most = 0;     // at one communication,
  size_t where = 0;    // which is this one
};

// waits[r][c]: of rank r in communication c.
std::vector<Late> lateness_of(const Tensor& waits) {
  const auto ranks = static_cast<size_t>(waits.size(0));
  std::vector<Late> late(ranks);
  const auto all = waits.accessor<double, 2>();
  for (int64_t c = 0; c + 1 < waits.size(1); ++c) {
    double longest = 0;
    for (size_t r = 0; r < ranks; ++r) longest = std::max(longest, all[r][c]);
    for (size_t r = 0; r < ranks; ++r) {
      const double by = longest - all[r][c];
      late[r].seconds += by;
      if (by <= late[r].most) continue;
      late[r].most = by;
      late[r].where = static_cast<size_t>(c);
    }
  }
  return late;
}

}  // namespace

std::optional<std::string> LatenessWatch::look(Communicator& comm,
                                               std::span<const ActionWait> waits) {
  const auto steps =
      static_cast<double>(std::max<int64_t>(1, std::exchange(steps_, 0)));
  std::vector<double> mine;
  for (const auto& wait : waits) mine.push_back(wait.seconds);
  mine.push_back(std::exchange(seconds_, 0));
  const auto columns = static_cast<int64_t>(mine.size());
  Tensor all = at::empty({comm.size(), columns}, at::kDouble);
  comm.all_gather(all, at::tensor(mine, at::kDouble)).wait();
  const auto late = lateness_of(all);
  std::vector<size_t> order(late.size());
  for (size_t r = 0; r < order.size(); ++r) order[r] = r;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return late[a].seconds > late[b].seconds; });
  const Late& worst = late[order[0]];
  const double time = all.select(1, columns - 1).max().item<double>();
  const double margin = worst.seconds - late[order[1]].seconds;
  const bool alone = margin > kWorthNaming * time && margin > kLeastSeconds * steps;
  const int suspect = alone ? static_cast<int>(order[0]) : -1;
  const bool twice = suspect >= 0 && std::exchange(suspect_, suspect) == suspect;
  suspect_ = suspect;
  if (!twice || suspect == named_) return std::nullopt;
  named_ = suspect;
  const auto a_step = [&](double sum) { return format_duration(sum / steps); };
  return text("rank ", suspect, " is slow: the others wait ", a_step(worst.seconds),
              " of a step of ", a_step(time), " for it, most at ",
              waits[worst.where].action, " (", a_step(worst.most), ")");
}

}  // namespace cohort
