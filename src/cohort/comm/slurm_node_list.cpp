// SPDX-License-Identifier: Apache-2.0
#include <charconv>

#include "cohort/comm/world_env.h"
#include "cohort/core/error.h"

namespace cohort {
namespace {

constexpr int kMaxHosts = 1 << 20;

[[noreturn]] void refuse(std::string_view list, const char* legal) {
  throw ConfigError(text("[comm.world] Slurm list '", list, "': not legal; ", legal));
}

[[noreturn]] void refuse_hosts(std::string_view list) {
  refuse(list, "legal is a form like node[01-04,7],login");
}

int to_int(std::string_view digits, std::string_view list) {
  int value = 0;
  auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0) {
    refuse(list, "expected a number");
  }
  return value;
}

// Splits at commas outside brackets.
std::vector<std::string_view> split_list(std::string_view list) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i == list.size() || (list[i] == ',' && depth == 0)) {
      parts.push_back(list.substr(begin, i - begin));
      begin = i + 1;
    } else if (list[i] == '[') {
      ++depth;
    } else if (list[i] == ']') {
      --depth;
    }
    if (depth < 0 || depth > 1) refuse_hosts(list);
  }
  if (depth != 0) refuse_hosts(list);
  return parts;
}

// "8" or "08-11": numbers keep the width of the first.
std::vector<std::string> expand_range(std::string_view range, std::string_view list) {
  const size_t dash = range.find('-');
  const std::string_view low = range.substr(0, dash);
  const std::string_view high =
      dash == std::string_view::npos ? low : range.substr(dash + 1);
  const int first = to_int(low, list), last = to_int(high, list);
  if (last < first || last - first >= kMaxHosts) refuse_hosts(list);
  std::vector<std::string> numbers;
  for (int number = first; number <= last; ++number) {
    std::string digits = std::to_string(number);
    if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
    numbers.push_back(std::move(digits));
  }
  return numbers;
}

// One name with any number of brackets: r[1-2]n[1-2] is four hosts.
std::vector<std::string> expand_host(std::string_view part, std::string_view list) {
  const size_t open = part.find('[');
  if (open == std::string_view::npos) return {std::string(part)};
  const size_t close = part.find(']', open);
  if (close == std::string_view::npos) refuse_hosts(list);
  const auto rests = expand_host(part.substr(close + 1), list);
  std::vector<std::string> hosts;
  for (std::string_view range : split_list(part.substr(open + 1, close - open - 1))) {
    for (const std::string& number : expand_range(range, list)) {
      for (const std::string& rest : rests) {
        hosts.push_back(text(part.substr(0, open), number, rest));
      }
      if (hosts.size() > kMaxHosts) refuse_hosts(list);
    }
  }
  return hosts;
}

}  // namespace

std::vector<std::string> slurm_hosts(std::string_view list) {
  std::vector<std::string> hosts;
  for (std::string_view part : split_list(list)) {
    if (part.empty()) refuse_hosts(list);
    for (std::string& host : expand_host(part, list)) hosts.push_back(std::move(host));
  }
  return hosts;
}

std::vector<int> slurm_tasks(std::string_view list) {
  std::vector<int> tasks;
  for (std::string_view part : split_list(list)) {
    const size_t open = part.find("(x");
    const int count = to_int(part.substr(0, open), list);
    int repeat = 1;
    if (open != std::string_view::npos) {
      if (part.back() != ')') refuse(list, "legal is a form like 2(x3),1");
      repeat = to_int(part.substr(open + 2, part.size() - open - 3), list);
    }
    if (repeat > kMaxHosts) refuse(list, "too many nodes");
    tasks.insert(tasks.end(), repeat, count);
  }
  return tasks;
}

}  // namespace cohort
