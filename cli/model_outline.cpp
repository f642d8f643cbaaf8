// SPDX-License-Identifier: Apache-2.0
#include "cli/model_outline.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <sstream>
#include <string>

#include "cohort/core/unique_fd.h"
#include "cohort/nn/without_memory.h"
#include "cohort/step/block_choice.h"
#include "cohort/step/stages.h"

namespace cohort::cli {
namespace {

constexpr char kTrained = 't', kFrozen = 'f', kBuffer = 'b';

void add_line(std::ostream& out, char kind, const NamedTensor& named) {
  const auto& [name, tensor] = named;
  out << kind << ' ' << static_cast<int>(tensor.scalar_type()) << ' ' << tensor.dim();
  for (const int64_t size : tensor.sizes()) out << ' ' << size;
  out << ' ' << name << '\n';
}

// The number of blocks, and a line a tensor.
std::string to_text(const Chain& chain) {
  std::ostringstream out;
  out << chain.blocks.size() << '\n';
  for (const auto& named : chain.parameters())
    add_line(out, named.tensor.requires_grad() ? kTrained : kFrozen, named);
  for (const auto& named : chain.buffers()) add_line(out, kBuffer, named);
  return out.str();
}

ModelOutline from_text(const std::string& text) {
  std::istringstream in(text);
  ModelOutline outline;
  in >> outline.blocks;
  for (char kind = 0; in >> kind;) {
    TensorSpec spec;
    int dtype = 0;
    size_t dims = 0;
    in >> dtype >> dims;
    spec.dtype = static_cast<at::ScalarType>(dtype);
    spec.shape.resize(dims);
    for (auto& size : spec.shape) in >> size;
    std::getline(in >> std::ws, spec.name);
    spec.end = spec.numel();
    auto& home = kind == kTrained  ? outline.trained
                 : kind == kFrozen ? outline.frozen
                                   : outline.buffers;
    home.push_back(std::move(spec));
  }
  return outline;
}

[[noreturn]] void tell(const Recipe& recipe, const Config& config, int fd) {
  try {
    const ModelsWithoutMemory guard;
    const std::string told = to_text(recipe.make_chain(config));
    for (size_t at = 0; at < told.size();) {
      const ssize_t count = ::write(fd, told.data() + at, told.size() - at);
      if (count < 0 && errno != EINTR) ::_exit(1);
      at += count > 0 ? static_cast<size_t>(count) : 0;
    }
  } catch (const std::exception&) {
    ::_exit(1);
  }
  ::_exit(0);
}

// The end of the pipe is there when the child is gone, whatever became of it.
std::string read_all(int fd) {
  std::string all;
  char part[4096];
  for (;;) {
    const ssize_t count = ::read(fd, part, sizeof part);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return all;
    all.append(part, static_cast<size_t>(count));
  }
}

bool ended_well(pid_t child) {
  int status = 1;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return false;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

std::optional<ModelOutline> outline_of(const Recipe& recipe, const Config& config) {
  int ends[2];
  if (::pipe(ends) != 0) return std::nullopt;
  const UniqueFd in(ends[0]);
  UniqueFd out(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) tell(recipe, config, out.get());
  out.reset();
  if (child < 0) return std::nullopt;
  const std::string told = read_all(in.get());
  if (!ended_well(child)) return std::nullopt;
  return from_text(told);
}

// Only a choice that names blocks, or a pipeline, needs to know how many there are.
void require_blocks(const Recipe& recipe, const Config& config, int stages) {
  constexpr const char* kKey = "step.recompute";
  const auto recompute = BlockChoice::parse(config.get_string(kKey), kKey);
  if (!recompute.names_blocks() && stages == 1) return;
  const auto outline = outline_of(recipe, config);
  if (!outline) return;
  recompute.require_within(outline->blocks, kKey);
  require_stages(outline->blocks, stages);
}

}  // namespace cohort::cli
