// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/block_call.h"
#include "cohort/step/layout.h"
#include "cohort/step/slices.h"

namespace cohort {

// Those whose sizes multiply to the world.
inline constexpr int kAxes = 5;
inline constexpr std::array<Axis, kAxes> kAllAxes = {
    Axis::kPipe, Axis::kReplicate, Axis::kCut, Axis::kContext, Axis::kTensor};
// All that have a name, outermost first.
inline constexpr std::array<Axis, kAxes + 2> kNamedAxes = {
    Axis::kPipe,      Axis::kReplicate, Axis::kCut,   Axis::kContext,
    Axis::kExpertCut, Axis::kExpert,    Axis::kTensor};
std::string_view name_of(Axis axis);

inline constexpr AxisSet kContextAxis = {Axis::kContext};
inline constexpr AxisSet kExpertAxes = {Axis::kExpertCut, Axis::kExpert};
// What layers of experts see in another way.
inline constexpr AxisSet kRecutAxes = {Axis::kCut, Axis::kContext};

// Where each rank stands: its coordinate along every axis. Nothing else turns a rank
// into a slice, a neighbour or a group.
class Mesh {
 public:
  Mesh() { sizes_.fill(1); }  // has one rank
  // ConfigError unless replicate divides dp, and ep what is left of it times cp.
  explicit Mesh(const Layout& layout);
  // ConfigError unless `experts` divides the ranks along kCut and kContext.
  explicit Mesh(const std::array<int, kAxes>& sizes, int experts = 1);

  int world() const;
  int size(Axis axis) const;
  int size(AxisSet axes) const;  // how many ranks differ along these alone

  int coordinate(int rank, Axis axis) const;
  // Its place among the ranks that differ from it along `axes` alone, in their order.
  int index(int rank, AxisSet axes) const;
  // All of those, in order; it is one of them. And the first, which names them.
  std::vector<int> members(int rank, AxisSet axes) const;
  int first(int rank, AxisSet axes) const;
  // So many places further along one axis, and round at its end.
  int neighbour(int rank, Axis axis, int distance) const;
  // Where along that axis such a neighbour is.
  int coordinate_beside(int rank, Axis axis, int distance) const {
    return coordinate(neighbour(rank, axis, distance), axis);
  }
  // The rank with another coordinate along one axis.
  int with(int rank, Axis axis, int coordinate) const;

  // What a rank computes of a batch of so many.
  SliceRange slices(int rank, int slices) const {
    return slices_of(index(rank, kDataAxes), size(kDataAxes), slices);
  }
  // Slices of the rank that has most.
  int rounds(int slices) const {
    return (slices + size(kDataAxes) - 1) / size(kDataAxes);
  }

  // How far apart neighbours along an axis are in the world.
  int stride(Axis axis) const;

  std::string text() const;  // "pp=2,cut=4": what is not 1
  bool operator==(const Mesh&) const = default;

 private:
  std::array<int, kAxes> sizes_;
  int experts_ = 1;  // along kExpert
};

}  // namespace cohort
