// SPDX-License-Identifier: Apache-2.0
#include "cli/kernel_times.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>

namespace cohort::cli {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

bool is_of_name(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
         (c >= 'A' && c <= 'Z');
}

// The first word from `begin` on that says what is computed, empty if there is none.
std::string_view functor_in(std::string_view kernel, size_t begin) {
  constexpr std::array<std::string_view, 5> kEnds = {"Functor", "KernelImpl", "_cuda",
                                                     "Ops", "Op"};
  while (begin < kernel.size()) {
    size_t end = begin;
    while (end < kernel.size() && is_of_name(kernel[end])) ++end;
    const std::string_view word = kernel.substr(begin, end - begin);
    for (const auto ending : kEnds)
      if (word.size() > ending.size() && word.ends_with(ending)) return word;
    begin = end + 1;
  }
  return {};
}

}  // namespace

std::string short_name(const std::string& kernel) {
  std::string_view all = kernel;
  if (all.starts_with("void ")) all.remove_prefix(5);
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  if (const size_t at = all.find(kAnonymous); at < all.find('<'))
    all.remove_prefix(at + kAnonymous.size());
  const size_t end = std::min({all.find('<'), all.find('('), all.size()});
  const std::string_view path = all.substr(0, end);
  const size_t colon = path.rfind(':');
  std::string name(colon == std::string_view::npos ? path : path.substr(colon + 1));
  const bool is_generic = name.find("elementwise") != std::string::npos ||
                          name.find("reduce_kernel") != std::string::npos;
  const auto functor = is_generic ? functor_in(all, end) : std::string_view();
  return functor.empty() ? name : name + " " + std::string(functor);
}

std::vector<KernelTime> kernel_times(c10::DeviceType device,
                                     const std::function<void()>& work) {
  const ProfilerConfig config(ProfilerState::KINETO);
  const std::set<ActivityType> activities = {
      device == c10::DeviceType::CUDA ? ActivityType::CUDA : ActivityType::CPU};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities, {at::RecordScope::FUNCTION});
  std::unique_ptr<profiler::ProfilerResult> result;
  try {
    work();
  } catch (...) {
    profiler::disableProfiler();
    throw;
  }
  result = profiler::disableProfiler();
  std::map<std::string, KernelTime> by_name;
  for (const auto& event : result->events()) {
    if (event.deviceType() != device) continue;
    const std::string name = short_name(event.name());
    KernelTime& time = by_name[name];
    time.name = name;
    ++time.launches;
    time.seconds += 1e-9 * static_cast<double>(event.durationNs());
  }
  std::vector<KernelTime> times;
  for (auto& entry : by_name) times.push_back(std::move(entry.second));
  std::ranges::sort(times, std::greater(), &KernelTime::seconds);
  return times;
}

}  // namespace cohort::cli
