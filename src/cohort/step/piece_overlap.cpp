// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/piece_overlap.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>

namespace cohort {

Overlaps::Overlaps(const TensorSpec& a, const TensorSpec& b)
    : a_(a.box, a.numel()),
      b_(b.box, b.numel()),
      same_box_(a.box == b.box),
      a_begin_(a.begin),
      a_end_(a.end),
      b_begin_(b.begin),
      b_end_(b.end),
      at_(a.begin) {}

std::optional<Overlap> Overlaps::next() {
  return same_box_ ? next_in_box() : next_run();
}

// Ranges of one box meet once.
std::optional<Overlap> Overlaps::next_in_box() {
  const int64_t begin = std::max(at_, b_begin_), end = std::min(a_end_, b_end_);
  if (begin >= end) return std::nullopt;
  at_ = end;
  return Overlap{begin - a_begin_, begin - b_begin_, end - begin};
}

std::optional<Overlap> Overlaps::next_run() {
  while (at_ < a_end_) {
    const int64_t first = a_.to_whole(at_);
    const int64_t run = std::min(a_.run_from(at_), a_end_ - at_);
    const int64_t in_b = std::max(b_.before(first), b_begin_);
    if (in_b >= b_end_) break;
    const int64_t met = b_.to_whole(in_b);
    if (met >= first + run) {  // nothing of this run, and of all before `met`
      at_ = a_.before(met);
      continue;
    }
    const int64_t in_a = at_ + met - first;
    const int64_t count =
        std::min({first + run - met, b_.run_from(in_b), b_end_ - in_b});
    at_ = in_a + count;
    return Overlap{in_a - a_begin_, in_b - b_begin_, count};
  }
  at_ = a_end_;
  return std::nullopt;
}

bool overlap(const TensorSpec& a, const TensorSpec& b) {
  return Overlaps(a, b).next().has_value();
}

namespace {

int64_t copy_within_box(const StatePiece& from, const StatePiece& to) {
  const auto shared = Overlaps(from.tensor.spec, to.tensor.spec).next();
  if (!shared) return 0;
  to.data.view({-1})
      .narrow(0, shared->in_b, shared->count)
      .copy_(from.data.view({-1}).narrow(0, shared->in_a, shared->count));
  return shared->count;
}

}  // namespace

// Runs may be short, so they are copied as bytes, on the host.
int64_t copy_overlap(const StatePiece& from, const StatePiece& to) {
  const c10::NoGradGuard no_grad;
  if (from.tensor.spec.box == to.tensor.spec.box) return copy_within_box(from, to);
  if (!overlap(from.tensor.spec, to.tensor.spec)) return 0;
  const Tensor source = from.data.detach().to(at::kCPU, to.data.scalar_type());
  const Tensor target = to.data.detach().cpu();
  const auto* const bytes = static_cast<const char*>(source.const_data_ptr());
  auto* const place = static_cast<char*>(target.mutable_data_ptr());
  const int64_t size = size_of(to.data.scalar_type());
  int64_t copied = 0;
  Overlaps shared(from.tensor.spec, to.tensor.spec);
  while (const auto run = shared.next()) {
    std::memcpy(place + run->in_b * size, bytes + run->in_a * size, run->count * size);
    copied += run->count;
  }
  if (!to.data.is_cpu()) to.data.copy_(target.view_as(to.data));
  return copied;
}

}  // namespace cohort
