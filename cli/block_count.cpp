// SPDX-License-Identifier: Apache-2.0
#include "cli/block_count.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <exception>

#include "cohort/nn/without_memory.h"
#include "cohort/step/block_choice.h"
#include "cohort/step/stages.h"

namespace cohort::cli {
namespace {

[[noreturn]] void tell_blocks(const Recipe& recipe, const Config& config, int fd) {
  bool told = false;
  try {
    const ModelsWithoutMemory guard;
    const int blocks = static_cast<int>(recipe.make_chain(config).blocks.size());
    told = ::write(fd, &blocks, sizeof blocks) == sizeof blocks;
  } catch (const std::exception&) {
    told = false;
  }
  ::_exit(told ? 0 : 1);
}

void wait_for(pid_t child) {
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

std::optional<int> count_blocks(const Recipe& recipe, const Config& config) {
  int ends[2];
  if (::pipe(ends) != 0) return std::nullopt;
  const pid_t child = ::fork();
  if (child == 0) tell_blocks(recipe, config, ends[1]);
  ::close(ends[1]);
  int blocks = 0;
  // The end of the pipe is there when the child is gone, whatever became of it.
  const bool told =
      child > 0 && ::read(ends[0], &blocks, sizeof blocks) == sizeof blocks;
  ::close(ends[0]);
  if (child > 0) wait_for(child);
  return told ? std::optional(blocks) : std::nullopt;
}

// Only a choice that names blocks, or a pipeline, needs to know how many there are.
void require_blocks(const Recipe& recipe, const Config& config, int stages) {
  constexpr const char* kKey = "step.recompute";
  const auto recompute = BlockChoice::parse(config.get_string(kKey), kKey);
  if (!recompute.names_blocks() && stages == 1) return;
  const auto blocks = count_blocks(recipe, config);
  if (!blocks) return;
  recompute.require_within(*blocks, kKey);
  require_stages(*blocks, stages);
}

}  // namespace cohort::cli
