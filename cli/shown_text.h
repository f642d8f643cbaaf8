// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace cohort::cli {

// A text of any bytes, which comes in pieces, as UTF-8 that a terminal shows and that
// does nothing else there: control characters but tabs and line ends become '?', bytes
// that are no UTF-8 U+FFFD. Bytes that are yet no whole character wait for the next
// piece.
class ShownText {
 public:
  std::string add(std::string_view more);
  std::string end();  // what still waits

 private:
  std::string waiting_;
};

// All of it at once.
std::string shown_text(std::string_view text);

}  // namespace cohort::cli
