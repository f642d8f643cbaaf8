// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/picture/testing_picture.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

namespace cohort::test {
namespace {

constexpr double kEm = 0.6;  // width of a letter, of its size: a wide font's mean

std::string attribute_in(std::string_view tag, const std::string& name) {
  const size_t at = tag.find(" " + name + "=\"");
  if (at == std::string_view::npos) return "";
  const size_t from = at + name.size() + 3;
  return std::string(tag.substr(from, tag.find('"', from) - from));
}

double number_in(std::string_view tag, const std::string& name) {
  return std::atof(attribute_in(tag, name).c_str());
}

std::string with_replaced(std::string words, std::string_view from,
                          std::string_view to) {
  for (size_t at = words.find(from); at != std::string::npos; at = words.find(from, at))
    words.replace(at, from.size(), to);
  return words;
}

std::string decoded(std::string words) {
  for (const auto& [code, letter] :
       {std::pair{"&#183;", "|"}, {"&gt;", ">"}, {"&lt;", "<"}, {"&quot;", "\""}})
    words = with_replaced(std::move(words), code, letter);
  return with_replaced(std::move(words), "&amp;", "&");
}

class PictureReader {
 public:
  explicit PictureReader(const std::string& svg) : svg_(svg) {}

  ShownPicture read() {
    for (size_t at = svg_.find('<'); at != std::string::npos;
         at = svg_.find('<', at + 1)) {
      const size_t end = svg_.find('>', at);
      tag_ = std::string_view(svg_).substr(at, end - at);
      behind_ = end + 1;
      take();
    }
    return std::move(shown_);
  }

 private:
  struct Nested {
    double x = 0, y = 0;
    std::string id;
  };

  bool is(std::string_view name) const {
    return tag_.starts_with(name) &&
           (tag_.size() == name.size() || tag_[name.size()] == ' ');
  }

  // What stands between this tag and its end, without tags.
  std::string inside(std::string_view end) const {
    const std::string all = svg_.substr(behind_, svg_.find(end, behind_) - behind_);
    std::string words;
    bool in_tag = false;
    for (char c : all) {
      if (c == '<') in_tag = true;
      if (!in_tag) words += c;
      if (c == '>') in_tag = false;
    }
    return decoded(words);
  }

  void take() {
    if (is("<svg")) shown_.width = number_in(tag_, "width");
    if (is("<svg")) shown_.height = number_in(tag_, "height");
    if (is("<style")) read_sizes();
    if (is("<g")) open();
    if (is("</g")) groups_.pop_back();
    if (is("<text")) take_text();
    if (is("<rect") && tag_.back() != '/') take_cell();
    if (is("<path"))
      shown_.paths.push_back(attribute_in(tag_, "class") + ": " +
                             attribute_in(tag_, "d"));
  }

  // ".name { font-size: 12px;" and the size of all that has none.
  void read_sizes() {
    const std::string style =
        svg_.substr(behind_, svg_.find("</style>", behind_) - behind_);
    const std::string key = "{ font-size: ";
    for (size_t at = style.find(key); at != std::string::npos;
         at = style.find(key, at + 1)) {
      const size_t dot = style.rfind('.', at);
      sizes_[style.substr(dot + 1, at - dot - 2)] =
          std::atof(style.c_str() + at + key.size());
    }
  }

  void open() {
    Nested group = nested();
    const std::string shift = attribute_in(tag_, "transform");
    if (shift.starts_with("translate(")) {
      group.x += std::atof(shift.c_str() + 10);
      group.y += std::atof(shift.c_str() + shift.find(' '));
    }
    if (const std::string id = attribute_in(tag_, "id"); !id.empty()) group.id = id;
    groups_.push_back(group);
  }

  Nested nested() const { return groups_.empty() ? Nested{} : groups_.back(); }

  void take_text() {
    ShownText shown{.words = inside("</text>"),
                    .css = " " + attribute_in(tag_, "class") + " ",
                    .group = nested().id,
                    .y = nested().y + number_in(tag_, "y"),
                    .size = 10};
    for (const auto& [css, size] : sizes_)
      if (shown.css.find(" " + css + " ") != std::string::npos) shown.size = size;
    const double width = static_cast<double>(shown.words.size()) * shown.size * kEm;
    const double x = nested().x + number_in(tag_, "x");
    const auto has = [&](const char* css) {
      return shown.css.find(css) != std::string::npos;
    };
    shown.left = x;
    if (has(" end ")) shown.left = x - width;
    if (has(" mid ") || has(" mark ")) shown.left = x - width / 2;
    shown.right = shown.left + width;
    shown_.texts.push_back(shown);
  }

  void take_cell() {
    ShownCell cell{.tip = inside("</rect>"),
                   .fill = attribute_in(tag_, "fill"),
                   .group = nested().id,
                   .x = nested().x + number_in(tag_, "x"),
                   .y = nested().y + number_in(tag_, "y"),
                   .width = number_in(tag_, "width"),
                   .height = number_in(tag_, "height")};
    if (const size_t at = cell.tip.find("(action "); at != std::string::npos)
      cell.action = std::atoi(cell.tip.c_str() + at + 8);
    shown_.cells.push_back(cell);
  }

  const std::string& svg_;
  std::string_view tag_;
  size_t behind_ = 0;
  std::vector<Nested> groups_;
  std::map<std::string, double> sizes_;
  ShownPicture shown_;
};

}  // namespace

ShownPicture read_picture(const std::string& svg) { return PictureReader(svg).read(); }

std::vector<ShownCell> ShownPicture::cells_of(const std::string& group) const {
  std::vector<ShownCell> found;
  for (const auto& cell : cells)
    if (cell.group == group && cell.action >= 0) found.push_back(cell);
  return found;
}

std::vector<std::string> ShownPicture::words_of(const std::string& css) const {
  std::vector<std::string> found;
  for (const auto& shown : texts)
    if (shown.css.find(" " + css + " ") != std::string::npos)
      found.push_back(shown.words);
  return found;
}

std::vector<std::string> overlaps(const ShownPicture& picture) {
  std::vector<ShownText> texts = picture.texts;
  std::sort(texts.begin(), texts.end(),
            [](const auto& a, const auto& b) { return a.left < b.left; });
  std::vector<std::string> found;
  for (size_t i = 0; i < texts.size(); ++i)
    for (size_t k = i + 1; k < texts.size() && texts[k].left < texts[i].right; ++k)
      if (std::abs(texts[k].y - texts[i].y) < 0.7 * texts[i].size)
        found.push_back(texts[i].words + " and " + texts[k].words);
  return found;
}

}  // namespace cohort::test
