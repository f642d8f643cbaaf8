// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/process.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <sstream>

#include "cohort/core/error.h"
#include "cohort/core/unique_fd.h"

namespace cohort {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

// Fields are counted behind the program's name, which may hold blanks and parentheses.
std::optional<ProcessStat> process_stat(pid_t pid) {
  const std::string folder = pid == 0 ? "self" : std::to_string(pid);
  const UniqueFd file(
      ::open(text("/proc/", folder, "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> bytes;  // several times the longest line
  const ssize_t size = file ? ::read(file.get(), bytes.data(), bytes.size()) : 0;
  const std::string line(bytes.data(), size > 0 ? size : 0);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(line.substr(name_end + 1));
  ProcessStat stat;
  fields >> stat.state >> stat.parent;
  std::string skipped;
  for (int field = 5; field < 22; ++field) fields >> skipped;
  fields >> stat.start_ticks;
  return fields ? std::optional(stat) : std::nullopt;
}

}  // namespace cohort
