// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cohort {

// Text that may stand between tags and in attributes.
std::string svg_escape(std::string_view text);
// Pixels: at most two decimals.
std::string svg_number(double value);

struct Colour {
  int red = 0, green = 0, blue = 0;

  std::string text() const;                       // "#4e79a7"
  Colour mixed(Colour other, double part) const;  // `part` of the other
  bool is_light() const;
};
inline constexpr Colour kWhite{255, 255, 255};
inline constexpr Colour kBlack{0, 0, 0};

// Writes elements one after another.
class Svg {
 public:
  struct Box {
    double x = 0, y = 0, width = 0, height = 0;
  };
  // `attributes` are written as they are; `tip` is shown under the pointer.
  void rect(const Box& box, std::string_view attributes, std::string_view tip = {});
  void line(double x1, double y1, double x2, double y2, std::string_view attributes);
  void label(double x, double y, std::string_view attributes, std::string_view words);
  void raw(std::string_view text) { out_ += text; }

  const std::string& text() const { return out_; }

 private:
  std::string out_;
};

}  // namespace cohort
