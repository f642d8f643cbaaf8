// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/out_of_memory.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/core/format.h"
#include "cohort/step/checker.h"
#include "cohort/step/memory_plan.h"
#include "cohort/train/step_plan.h"

namespace cohort {
namespace {

using Holds = Buffer::Holds;

constexpr size_t kMostNamed = 5;   // parts of a plan that a line has room for
constexpr size_t kMostAdvice = 4;  // the same of other plans
// The plan fitted and the step did not, so another that needs as much would not either.
constexpr double kSmaller = 0.75;

std::string mebibytes(int64_t bytes) {
  return format_fixed(static_cast<double>(bytes) / (1 << 20), 1) + " MiB";
}

std::string_view words_of(Holds holds) {
  switch (holds) {
    case Holds::kSlot:
    case Holds::kLeaf:
      return "gradients";
    case Holds::kGathered:
      return "gathered parameters";
    case Holds::kReceived:
      return "received values";
    case Holds::kWhole:
      return "parameters";
    case Holds::kMaster:
      return "float32 weights";
    case Holds::kTravelling:
      return "shards of parameters";
    case Holds::kMoment:
      return "optimizer state";
    case Holds::kPartial:
    case Holds::kSum:
    case Holds::kStack:
    case Holds::kNodes:
      return "sums of gradients";
    case Holds::kMirrorMaster:
    case Holds::kMirrorMoment:
    case Holds::kMirrorSum:
      return "copies of a neighbour's state";
    case Holds::kUnknown:
      break;
  }
  return "state";
}

struct PlanPart {
  std::string name;
  int64_t bytes = 0;
  int buffers = 0;

  std::string text() const {
    const std::string count =
        buffers > 1 ? cohort::text(" in ", buffers, " buffers") : "";
    return cohort::text(name, " ", mebibytes(bytes), count);
  }
};

std::vector<PlanPart> parts_of(const Schedule& schedule, const Role& role) {
  std::map<std::string_view, PlanPart> kinds;
  const auto kept = kept_buffers(schedule, role);
  for (size_t i = 0; i < kept.size(); ++i) {
    const Buffer& buffer = schedule.buffers[i];
    if (!kept[i] || buffer.memory != schedule.computes_in) continue;
    PlanPart& part = kinds[words_of(buffer.holds)];
    part.bytes += buffer.bytes();
    ++part.buffers;
  }
  std::vector<PlanPart> parts;
  for (auto& [name, part] : kinds) {
    part.name = name;
    parts.push_back(std::move(part));
  }
  const CheckReport report = check(schedule);
  const MemoryParts& peak = report.roles.at(&role - schedule.roles.data()).parts;
  parts.push_back({"activations", peak.activations});
  parts.push_back({"scratch of a block", peak.scratch});
  std::erase_if(parts, [](const PlanPart& part) { return part.bytes == 0; });
  std::ranges::stable_sort(parts, std::greater(), &PlanPart::bytes);
  return parts;
}

std::string named_gpu(const ExecutorOptions& options) {
  const bool on_gpu = options.compute_on == ComputeOn::kCuda;
  return on_gpu ? text("GPU ", options.gpu, " is ") : "";
}

// What LibTorch says in its second sentence: ", tried to allocate 2.00 GiB".
std::string tried(std::string_view said) {
  constexpr std::string_view kTried = "Tried to allocate ";
  const size_t begin = said.find(kTried);
  if (begin == std::string_view::npos) return "";
  const std::string_view rest = said.substr(begin + kTried.size());
  const size_t end = std::min(rest.find(". "), rest.find('\n'));
  return text(", tried to allocate ", rest.substr(0, end));
}

// Another way to run the same model, in the words of the command line.
struct Advice {
  std::string name;
  WorldOptions options;
};

std::vector<Advice> other_ways(const WorldOptions& options) {
  std::vector<Advice> ways;
  const auto add = [&](std::string name, auto change) {
    ways.push_back({std::move(name), options});
    change(ways.back().options);
  };
  const Layout& layout = options.layout;
  if (!options.step.recompute.is_all())
    add("step.recompute=all", [](auto& o) { o.step.recompute = true; });
  const int slices = 2 * options.slices;
  if (slices <= options.batch)
    add(text("slices=", slices), [&](auto& o) { o.slices = slices; });
  if (layout.dp > 1 && layout.shard < 3)
    add("--layout shard=3", [](auto& o) { o.layout.shard = 3; });
  const bool on_device = options.execute.compute_on != ComputeOn::kHost;
  if (on_device && !options.step.offload && !options.step.offload_parameters)
    add("step.offload=optimizer", [](auto& o) { o.step.offload = true; });
  if (on_device && !options.step.offload_parameters)
    add("step.offload=parameters", [](auto& o) { o.step.offload_parameters = true; });
  if (layout.pp == 1 && layout.tp == 1 && 2 * layout.dp <= options.batch)
    add(text("-n ", 2 * layout.dp, " --layout shard=3 on as many GPUs"), [](auto& o) {
      o.layout.dp *= 2;
      o.layout.shard = 3;
      o.slices = std::max(o.slices, o.layout.dp);
    });
  if (options.batch >= 2 * options.slices)
    add(text("batch=", options.batch / 2), [](auto& o) { o.batch /= 2; });
  return ways;
}

int64_t bytes_where_it_computes(const Schedule& schedule) {
  const RolePeak peak = check(schedule).largest();
  return schedule.computes_in == Buffer::Memory::kDevice ? peak.on_device
                                                         : peak.on_host();
}

// Nothing for a way that this model or layout does not have.
std::optional<int64_t> bytes_of(const Advice& way, const Chain& chain,
                                std::span<const BlockMeasure> measures,
                                const UpdateRule& rule) {
  try {
    const auto specs = specs_of(chain);
    return bytes_where_it_computes(
        generate_for(specs, way.options, measures, rule, way.options.batch));
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

std::string what_needs_less(const Chain& chain, std::span<const BlockMeasure> measures,
                            const WorldOptions& options, const UpdateRule& rule,
                            int64_t need) {
  std::vector<std::string> fitting;
  for (const Advice& way : other_ways(options)) {
    const auto bytes = bytes_of(way, chain, measures, rule);
    if (bytes && static_cast<double>(*bytes) <= kSmaller * static_cast<double>(need) &&
        fitting.size() < kMostAdvice)
      fitting.push_back(text(way.name, " (", mebibytes(*bytes), ")"));
  }
  if (fitting.empty()) return "a smaller model, batch or precision";
  std::string out = fitting[0];
  for (size_t i = 1; i < fitting.size(); ++i) out += text(", or ", fitting[i]);
  return out;
}

}  // namespace

std::string largest_in_plan(const Schedule& schedule, const Role& role) {
  const auto parts = parts_of(schedule, role);
  std::string out;
  int64_t sum = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    sum += parts[i].bytes;
    if (i < kMostNamed) out += text(out.empty() ? "" : ", ", parts[i].text());
  }
  if (parts.size() > kMostNamed)
    out += text(", and ", parts.size() - kMostNamed, " more");
  return text(out, "; together ", mebibytes(sum));
}

ConfigError out_of_memory(std::string_view said, const Chain& chain,
                          std::span<const BlockMeasure> measures,
                          const WorldOptions& options, const UpdateRule& rule,
                          int rank) {
  const auto specs = specs_of(chain);
  const Schedule schedule = generate_for(specs, options, measures, rule, options.batch);
  return ConfigError(text(
      "[train] ", named_gpu(options.execute), "out of memory", tried(said), " on rank ",
      rank, "; its plan has there: ", largest_in_plan(schedule, schedule.role_of(rank)),
      options.counted.empty() ? "" : " (activations counted, an estimate)",
      "; would need less by the plan: ",
      what_needs_less(chain, measures, options, rule,
                      bytes_where_it_computes(schedule))));
}

}  // namespace cohort
