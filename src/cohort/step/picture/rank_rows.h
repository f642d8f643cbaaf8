// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cohort/step/picture/memory_row.h"
#include "cohort/step/picture/picture_rows.h"
#include "cohort/step/schedule.h"
#include "cohort/step/step_times.h"

namespace cohort {

class CallMarks;

// A rank of a step without stages: a row for each lane, with names of blocks.
class RankRows : public PictureRows {
 public:
  RankRows(const Schedule& schedule, int role, const std::vector<ActionTime>& times);

  double height() const override;
  const std::vector<MemoryPoint>& memory() const override { return memory_.points(); }
  void draw(Svg& svg, const Scale& scale) const override;
  void draw_names(Svg& svg) const override;

 private:
  struct Lane {
    int number;
    std::string name;
    double y;
    double height;
  };
  double lanes_height() const;
  void draw_action(Svg& svg, const Scale& scale, const Lane& lane, size_t action,
                   CallMarks& calls) const;

  const Schedule& schedule_;
  const Role& role_;
  const std::vector<ActionTime>& times_;
  std::vector<Lane> lanes_;
  MemoryRow memory_;
};

}  // namespace cohort
