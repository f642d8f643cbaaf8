// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cohort/step/picture/memory_row.h"
#include "cohort/step/picture/picture_rows.h"
#include "cohort/step/schedule.h"
#include "cohort/step/step_times.h"

namespace cohort {

// Blocks that follow one another, first and last of them. An interleaved stage of a
// pipeline has several such runs.
struct BlockRun {
  int first = 0, last = 0;

  std::string text() const;  // "block 3", "blocks 2-5"
};
std::vector<BlockRun> block_runs(const Role& role);

// Actions of compute that follow one another, of one kind, slice and run of blocks. A
// picture of a pipeline has one number for them.
struct SliceTurn {
  ActionKind kind = ActionKind::kForward;
  int slice = kNone;
  int run = kNone;              // its place in block_runs(); kNone: of no block
  std::vector<size_t> actions;  // that take time
  double begin = 0, end = 0;
};
std::vector<SliceTurn> slice_turns(const Role& role,
                                   const std::vector<ActionTime>& times);

// A role of a pipeline: what it computes, numbered by slice, with a row for each run of
// blocks; thin rows of the channels it uses; where it waits; its memory.
class StageRows : public PictureRows {
 public:
  // Waiting ends with the step, which the slowest role ends.
  StageRows(const Schedule& schedule, int role, const std::vector<ActionTime>& times,
            double step_seconds);

  double height() const override;
  const std::vector<MemoryPoint>& memory() const override { return memory_.points(); }
  void draw(Svg& svg, const Scale& scale) const override;
  void draw_names(Svg& svg) const override;

 private:
  struct Row {
    std::string name;
    int lane;
    double y, height;
  };
  double rows_height() const { return rows_.back().y + rows_.back().height; }
  Svg::Box box_of(const SliceTurn& turn, const Scale& scale) const;
  void draw_idle(Svg& svg, const Scale& scale) const;
  void draw_turns(Svg& svg, const Scale& scale) const;
  void draw_words(Svg& svg, const SliceTurn& turn, const Svg::Box& box) const;
  void draw_channel(Svg& svg, const Scale& scale, const Row& row) const;

  const Schedule& schedule_;
  const Role& role_;
  const std::vector<ActionTime>& times_;
  double step_seconds_;
  std::vector<BlockRun> runs_;
  std::vector<SliceTurn> turns_;
  std::vector<Row> rows_;  // one for each run of blocks, then for each channel
  double compute_height_ = 0;
  MemoryRow memory_;
};

}  // namespace cohort
