// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/seating.h"

#include <algorithm>
#include <numeric>

namespace cohort {
namespace {

// Places in a world of so many teams: stages are outermost, then teams, then parts.
struct SeatGrid {
  int teams;
  const Team& team;

  int place(int number, int member) const {
    const int stage = member / team.parts, part = member % team.parts;
    return (stage * teams + number) * team.parts + part;
  }
};

}  // namespace

std::vector<int> seat(const std::vector<bool>& lives, int teams, const Team& team) {
  const SeatGrid before{static_cast<int>(lives.size()) / team.ranks(), team};
  const SeatGrid next{teams, team};
  const auto is_broken = [&](int number) {
    for (int m = 0; m < team.ranks(); ++m)
      if (!lives[before.place(number, m)]) return true;
    return false;
  };
  std::vector<int> order(before.teams);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_partition(order, [&](int number) { return !is_broken(number); });
  std::vector<int> left;  // members of teams that are broken up
  for (int i = teams; i < before.teams; ++i)
    for (int m = 0; m < team.ranks(); ++m)
      if (const int place = before.place(order[i], m); lives[place])
        left.push_back(place);
  order.resize(std::min(teams, before.teams));
  std::ranges::sort(order);
  std::vector<int> seats(teams * team.ranks(), -1);
  for (size_t i = 0; i < order.size(); ++i)
    for (int m = 0; m < team.ranks(); ++m)
      if (const int place = before.place(order[i], m); lives[place])
        seats[next.place(static_cast<int>(i), m)] = place;
  auto taken = left.begin();
  for (int& one : seats)
    if (one < 0 && taken != left.end()) one = *taken++;
  return seats;
}

}  // namespace cohort
