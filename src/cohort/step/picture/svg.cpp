// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/picture/svg.h"

#include <cmath>
#include <cstdio>

#include "cohort/core/error.h"

namespace cohort {

std::string svg_escape(std::string_view text) {
  std::string out;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (byte < ' ' || byte > '~')
      out += '?';
    else
      out += c;
  }
  return out;
}

std::string svg_number(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.2f", value);
  std::string out = buffer;
  out.erase(out.find_last_not_of('0') + 1);
  if (out.back() == '.') out.pop_back();
  return out == "-0" ? "0" : out;
}

std::string Colour::text() const {
  char buffer[16];
  std::snprintf(buffer, sizeof(buffer), "#%02x%02x%02x", red & 255, green & 255,
                blue & 255);
  return buffer;
}

Colour Colour::mixed(Colour other, double part) const {
  const auto mix = [&](int a, int b) {
    return static_cast<int>(std::lround(a + (b - a) * part));
  };
  return {mix(red, other.red), mix(green, other.green), mix(blue, other.blue)};
}

// The weights are those of ITU-R BT.601.
bool Colour::is_light() const {
  return 0.299 * red + 0.587 * green + 0.114 * blue > 150;
}

void Svg::rect(const Box& box, std::string_view attributes, std::string_view tip) {
  out_ += ::cohort::text("<rect x=\"", svg_number(box.x), "\" y=\"", svg_number(box.y),
                         "\" width=\"", svg_number(box.width), "\" height=\"",
                         svg_number(box.height), "\" ", attributes);
  if (tip.empty())
    out_ += "/>\n";
  else
    out_ += ::cohort::text("><title>", svg_escape(tip), "</title></rect>\n");
}

void Svg::line(double x1, double y1, double x2, double y2,
               std::string_view attributes) {
  out_ += ::cohort::text("<line x1=\"", svg_number(x1), "\" y1=\"", svg_number(y1),
                         "\" x2=\"", svg_number(x2), "\" y2=\"", svg_number(y2), "\" ",
                         attributes, "/>\n");
}

void Svg::label(double x, double y, std::string_view attributes,
                std::string_view words) {
  out_ += ::cohort::text("<text x=\"", svg_number(x), "\" y=\"", svg_number(y), "\" ",
                         attributes, ">", svg_escape(words), "</text>\n");
}

}  // namespace cohort
