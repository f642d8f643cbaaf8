// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/step/picture/svg.h"
#include "cohort/step/schedule.h"

namespace cohort {

// What colours and shades of a picture mean, in lines as wide as the page.
class Legend {
 public:
  Legend(const Schedule& schedule, bool has_memory, double page_width);

  double height() const { return height_; }
  void draw(Svg& svg, double top) const;

 private:
  struct Entry {
    std::string words;
    std::string fill;     // attributes of its swatch; empty: words alone
    std::string pattern;  // over the swatch
    bool calls = false;   // ticks in it
    double x = 0, y = 0;  // place of the words' line, from the top
  };
  void add_colours(const Schedule& schedule);
  void add_shades(const Schedule& schedule, bool has_memory);
  void add(Entry entry);

  double page_width_;
  double x_ = 0, y_ = 0;
  double height_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace cohort
