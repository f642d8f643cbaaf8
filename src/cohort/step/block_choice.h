// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort {

// Some blocks of a chain: none, all, one in so many, or those that are named.
class BlockChoice {
 public:
  BlockChoice(bool all = false) : every_(all ? 1 : 0) {}

  // Reads "none", "all", "every=K" (blocks 0, K, 2K, ...) or numbers and ranges such as
  // "blocks=0-3,7"; "true" and "false" are all and none. ConfigError with `what`, the
  // name of the setting.
  static BlockChoice parse(std::string_view text, std::string_view what);

  bool has(int block) const;
  // As parse() reads it.
  std::string text() const;
  bool is_all() const { return every_ == 1; }
  bool names_blocks() const { return !ranges_.empty(); }
  explicit operator bool() const { return every_ > 0 || !ranges_.empty(); }

  // ConfigError if a block is named that a chain of so many does not have.
  void require_within(int blocks, std::string_view what) const;

 private:
  int every_ = 0;                            // 0: none
  std::vector<std::pair<int, int>> ranges_;  // first and last
};

}  // namespace cohort
