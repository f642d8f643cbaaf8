// SPDX-License-Identifier: Apache-2.0
#include "cohort/observe/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/observe/meter.h"

namespace cohort {
namespace {

// Dots in cells of text: one per cell in ASCII, two by four in braille.
class Canvas {
 public:
  Canvas(int columns, int rows, bool ascii)
      : columns_(columns),
        rows_(rows),
        ascii_(ascii),
        cells_(static_cast<size_t>(columns * rows)) {}

  int width() const { return columns_ * (ascii_ ? 1 : 2); }
  int height() const { return rows_ * (ascii_ ? 1 : 4); }

  void set(int x, int y) {
    // Numbers of braille dots, by column and row: 1 2 3 7 and 4 5 6 8.
    static constexpr uint8_t kBits[2][4] = {{0x01, 0x02, 0x04, 0x40},
                                            {0x08, 0x10, 0x20, 0x80}};
    if (ascii_) {
      cells_[static_cast<size_t>(y * columns_ + x)] = 1;
    } else {
      cells_[static_cast<size_t>(y / 4 * columns_ + x / 2)] |= kBits[x % 2][y % 4];
    }
  }

  std::string row(int y) const {
    std::string line;
    for (int x = 0; x < columns_; ++x) {
      line += cell(cells_[static_cast<size_t>(y * columns_ + x)]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
  }

 private:
  std::string cell(uint8_t bits) const {
    if (bits == 0) return " ";
    if (ascii_) return "*";
    // U+2800 + bits, in UTF-8.
    return {'\xe2', static_cast<char>(0xa0 | bits >> 6),
            static_cast<char>(0x80 | (bits & 0x3f))};
  }

  int columns_;
  int rows_;
  bool ascii_;
  std::vector<uint8_t> cells_;
};

// The mean of the finite values that fall on each of `columns` columns; NaN: none.
std::vector<double> resample(std::span<const double> values, int columns) {
  std::vector<double> out(static_cast<size_t>(columns));
  const size_t n = values.size();
  for (size_t x = 0; x < out.size(); ++x) {
    const size_t begin = x * n / out.size();
    const size_t end = std::max(begin + 1, (x + 1) * n / out.size());
    MeanMeter mean;
    for (size_t i = begin; i < std::min(end, n); ++i) {
      if (std::isfinite(values[i])) mean.add(values[i]);
    }
    out[x] = mean.mean();
  }
  return out;
}

struct PlotRange {
  double low = 0;
  double high = 1;
};

PlotRange scale_of(const std::vector<double>& curve) {
  PlotRange scale{INFINITY, -INFINITY};
  for (const double value : curve) {
    if (std::isnan(value)) continue;
    scale.low = std::min(scale.low, value);
    scale.high = std::max(scale.high, value);
  }
  return scale;
}

// Joins neighbouring points by a vertical stroke, so that a steep curve stays one.
void draw(Canvas& canvas, const std::vector<double>& curve, const PlotRange& scale) {
  const double range = scale.high - scale.low;
  int previous = -1;
  for (int x = 0; x < canvas.width(); ++x) {
    const double value = curve[static_cast<size_t>(x)];
    if (std::isnan(value)) {
      previous = -1;
      continue;
    }
    const double share = range > 0 ? (scale.high - value) / range : 0.5;
    const int y = static_cast<int>(std::lround(share * (canvas.height() - 1)));
    const int from =
        previous < 0 || previous == y ? y : previous + (y > previous ? 1 : -1);
    for (int row = std::min(from, y); row <= std::max(from, y); ++row)
      canvas.set(x, row);
    previous = y;
  }
}

std::string x_axis(size_t margin, const PlotOptions& options, size_t count) {
  const double last = options.last_x < options.first_x
                          ? options.first_x + static_cast<double>(count) - 1
                          : options.last_x;
  const std::string left = format_quantity(options.first_x),
                    right = format_quantity(last);
  const auto width = static_cast<size_t>(options.width);
  const size_t gap =
      width > left.size() + right.size() ? width - left.size() - right.size() : 1;
  return text(std::string(margin, ' '), "+", std::string(width, '-'), "\n",
              std::string(margin + 1, ' '), left, std::string(gap, ' '), right, "\n");
}

}  // namespace

std::string plot(std::span<const double> values, const PlotOptions& options) {
  COHORT_CHECK(options.width > 0 && options.height > 0, options.width, " by ",
               options.height);
  Canvas canvas(options.width, options.height, options.ascii);
  const auto curve = resample(values, canvas.width());
  const PlotRange scale = scale_of(curve);
  if (scale.low > scale.high) return "(nothing to plot)\n";
  draw(canvas, curve, scale);

  const std::string top = format_quantity(scale.high),
                    bottom = format_quantity(scale.low);
  const size_t margin = std::max(top.size(), bottom.size()) + 1;
  std::string out;
  for (int y = 0; y < options.height; ++y) {
    const std::string label = y == 0 ? top : y == options.height - 1 ? bottom : "";
    out += text(std::string(margin - 1 - label.size(), ' '), label, " |", canvas.row(y),
                "\n");
  }
  return out + x_axis(margin, options, values.size());
}

}  // namespace cohort
