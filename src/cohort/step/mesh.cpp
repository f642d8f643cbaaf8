// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/mesh.h"

#include <functional>
#include <numeric>

#include "cohort/core/error.h"

namespace cohort {
namespace {

constexpr std::array<std::string_view, kNamedAxes.size()> kAxisNames = {
    "pp", "replicate", "cut", "cp", "tp", "edp", "ep"};

}  // namespace

std::string_view name_of(Axis axis) { return kAxisNames[static_cast<size_t>(axis)]; }

Mesh::Mesh(const std::array<int, kAxes>& sizes, int experts)
    : sizes_(sizes), experts_(experts) {
  if (experts < 1 || size(kRecutAxes) % experts != 0)
    throw ConfigError(::cohort::text("[step] ep=", experts, " does not divide the ",
                                     size(kRecutAxes),
                                     " ranks along dp / replicate x cp"));
}

Mesh::Mesh(const Layout& layout)
    : Mesh({layout.pp, layout.replicate, layout.dp / layout.replicate, layout.cp,
            layout.tp},
           layout.ep) {
  if (layout.dp % layout.replicate != 0)
    throw ConfigError(::cohort::text("[step] layout ", layout.text(),
                                     ": replicate=", layout.replicate,
                                     " does not divide dp=", layout.dp));
}

int Mesh::world() const {
  return std::accumulate(sizes_.begin(), sizes_.end(), 1, std::multiplies<>());
}

int Mesh::size(Axis axis) const {
  if (axis == Axis::kExpert) return experts_;
  if (axis == Axis::kExpertCut) return size(kRecutAxes) / experts_;
  return sizes_[static_cast<size_t>(axis)];
}

int Mesh::size(AxisSet axes) const {
  COHORT_CHECK(!axes.meets(kExpertAxes) || !axes.meets(kRecutAxes),
               "axes name the same ranks in two ways");
  int ranks = 1;
  for (const Axis axis : kNamedAxes)
    if (axes.has(axis)) ranks *= size(axis);
  return ranks;
}

// kCut and kContext lie beside each other, so the two ways of experts do as well.
int Mesh::stride(Axis axis) const {
  if (axis == Axis::kExpert) return stride(Axis::kContext);
  if (axis == Axis::kExpertCut) return stride(Axis::kContext) * experts_;
  int ranks = 1;
  for (size_t inner = static_cast<size_t>(axis) + 1; inner < kAxes; ++inner)
    ranks *= sizes_[inner];
  return ranks;
}

int Mesh::coordinate(int rank, Axis axis) const {
  return rank / stride(axis) % size(axis);
}

int Mesh::with(int rank, Axis axis, int coordinate) const {
  return rank + (coordinate - this->coordinate(rank, axis)) * stride(axis);
}

int Mesh::neighbour(int rank, Axis axis, int distance) const {
  const int n = size(axis);
  return with(rank, axis, ((coordinate(rank, axis) + distance) % n + n) % n);
}

int Mesh::index(int rank, AxisSet axes) const {
  int index = 0;
  for (const Axis axis : kNamedAxes)
    if (axes.has(axis)) index = index * size(axis) + coordinate(rank, axis);
  return index;
}

int Mesh::first(int rank, AxisSet axes) const {
  for (const Axis axis : kNamedAxes)
    if (axes.has(axis)) rank = with(rank, axis, 0);
  return rank;
}

std::vector<int> Mesh::members(int rank, AxisSet axes) const {
  std::vector<int> all{rank};
  for (const Axis axis : kNamedAxes) {
    if (!axes.has(axis)) continue;
    std::vector<int> wider;
    for (const int member : all)
      for (int c = 0; c < size(axis); ++c) wider.push_back(with(member, axis, c));
    all = std::move(wider);
  }
  return all;
}

std::string Mesh::text() const {
  std::string out;
  for (const Axis axis : kAllAxes)
    if (size(axis) > 1)
      out += ::cohort::text(out.empty() ? "" : ",", name_of(axis), "=", size(axis));
  if (experts_ > 1) out += ::cohort::text(",", name_of(Axis::kExpert), "=", experts_);
  return out.empty() ? "1" : out;
}

}  // namespace cohort
