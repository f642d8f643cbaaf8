// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

// For tests: what a picture shows, and where on the page.
namespace cohort::test {

struct ShownText {
  std::string words;  // a middle dot is "|"
  std::string css;    // its classes
  std::string group;  // id of the group that it is in
  double left = 0, right = 0, y = 0;
  double size = 0;  // size of its letters
};

struct ShownCell {
  std::string tip;
  std::string fill;
  std::string group;
  int action = -1;  // from the tip
  double x = 0, y = 0, width = 0, height = 0;
};

struct ShownPicture {
  double width = 0, height = 0;
  std::vector<ShownText> texts;
  std::vector<ShownCell> cells;    // boxes with a tip
  std::vector<std::string> paths;  // "class: data", in order

  std::vector<ShownCell> cells_of(const std::string& group) const;
  std::vector<std::string> words_of(const std::string& css) const;
};

// Reads what the renderer writes, no other SVG.
ShownPicture read_picture(const std::string& svg);

// "words and words", for each two of a line that share pixels.
std::vector<std::string> overlaps(const ShownPicture& picture);

}  // namespace cohort::test
