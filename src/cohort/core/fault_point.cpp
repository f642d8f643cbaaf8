// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/fault_point.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <utility>

#include "cohort/core/parse.h"
#include "cohort/core/unique_fd.h"

namespace cohort {
namespace {

constexpr std::string_view kSlowWord = "slow";

[[noreturn]] void refuse(std::string_view spec, std::string_view why) {
  throw ConfigError(text("[core.fault] '", spec, "': ", why,
                         "; legal: NAME[INDEX]@RANK:COUNT="
                         "throw|kill|freeze|flip|drop|slowMILLISECONDS*MOST"));
}

Fault::Action parse_action(std::string_view spec, std::string_view word) {
  if (word == "throw") return Fault::Action::kThrow;
  if (word == "kill") return Fault::Action::kKill;
  if (word == "freeze") return Fault::Action::kFreeze;
  if (word == "flip") return Fault::Action::kFlip;
  if (word == "drop") return Fault::Action::kDrop;
  if (word.starts_with(kSlowWord)) return Fault::Action::kSlow;
  refuse(spec, text("unknown action '", word, "'"));
}

int64_t parse_number(std::string_view spec, std::string_view word, int64_t lowest) {
  const auto number = try_parse_int(word);
  if (!number || *number < lowest) refuse(spec, text("bad number '", word, "'"));
  return *number;
}

// Cuts what follows the last `mark` off `head` and returns it.
std::string_view take_after(std::string_view& head, char mark) {
  const size_t at = head.rfind(mark);
  if (at == std::string_view::npos) return {};
  const auto tail = head.substr(at + 1);
  head = head.substr(0, at);
  return tail;
}

Fault parse_fault(std::string_view spec) {
  Fault fault;
  std::string_view head = spec;
  std::string_view action = take_after(head, '=');
  if (action.find('*') != std::string_view::npos)
    fault.most = parse_number(spec, take_after(action, '*'), 1);
  fault.action = parse_action(spec, action);
  if (fault.action == Fault::Action::kSlow)
    fault.delay = std::chrono::milliseconds(
        parse_number(spec, action.substr(kSlowWord.size()), 1));
  const size_t at = head.rfind('@');
  if (at == std::string_view::npos) refuse(spec, "no @RANK");
  std::string_view name = head.substr(0, at), where = head.substr(at + 1);
  if (where.find(':') != std::string_view::npos) {
    fault.count = parse_number(spec, take_after(where, ':'), 1);
  }
  if (where != "*") fault.rank = static_cast<int>(parse_number(spec, where, 0));
  if (!name.empty() && name.back() == ']') {
    name.remove_suffix(1);
    fault.index = parse_number(spec, take_after(name, '['), 0);
  }
  if (name.empty()) refuse(spec, "no name");
  fault.name = name;
  return fault;
}

std::string_view action_word(Fault::Action action) {
  constexpr std::string_view kWords[] = {"throw", "kill", "freeze", kSlowWord,
                                         "flip",  "drop", "call"};
  return kWords[static_cast<int>(action)];
}

// A line in the file that COHORT_FAULT_LOG names: what is armed in many processes
// strikes in few of them, and whoever armed it wants to know.
std::string line_of(const Fault& fault, int rank, int64_t index) {
  const std::string delay =
      fault.action == Fault::Action::kSlow ? text(fault.delay.count()) : "";
  return text(fault.name, "[", index, "]@", rank, "=", action_word(fault.action), delay,
              "\n");
}

bool is_spent(const Fault& fault, int rank, int64_t index) {
  const char* const path = std::getenv("COHORT_FAULT_LOG");
  if (fault.most == 0 || !path) return false;
  std::ifstream file(path);
  const std::string line = line_of(fault, rank, index);
  int64_t struck = 0;
  for (std::string one; std::getline(file, one);) struck += one + '\n' == line;
  return struck >= fault.most;
}

// A line is one write(), so that those of several processes do not mix.
void tell(const Fault& fault, int rank, int64_t index) {
  const char* const path = std::getenv("COHORT_FAULT_LOG");
  if (!path) return;
  const UniqueFd file(::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  const std::string line = line_of(fault, rank, index);
  if (::write(file.get(), line.data(), line.size()) < 0) return;  // nobody listens
}

void fire(const Fault& fault, int rank, int64_t index) {
  tell(fault, rank, index);
  switch (fault.action) {
    case Fault::Action::kThrow:
      throw InjectedFault(text("[core.fault] ", fault.name, ": injected on rank ", rank,
                               " at index ", index));
    case Fault::Action::kKill:
      ::kill(::getpid(), SIGKILL);
      return;
    case Fault::Action::kFreeze:
      ::kill(::getpid(), SIGSTOP);
      return;
    case Fault::Action::kSlow:
      std::this_thread::sleep_for(fault.delay);
      return;
    case Fault::Action::kFlip:
    case Fault::Action::kDrop:
      return;
    case Fault::Action::kCall:
      fault.call();
  }
}

}  // namespace

FaultPlan::FaultPlan(std::string_view spec) {
  for (const auto& part : split(spec, ';')) {
    if (!part.empty()) arm(parse_fault(part));
  }
}

FaultPlan FaultPlan::from_env() {
  const char* spec = std::getenv("COHORT_FAULT");
  return FaultPlan(spec ? std::string_view(spec) : std::string_view());
}

void FaultPlan::arm(Fault fault) {
  COHORT_CHECK(fault.count > 0, "pass ", fault.count, " of ", fault.name);
  COHORT_CHECK((fault.action == Fault::Action::kCall) == bool(fault.call), fault.name);
  const std::lock_guard lock(mutex_);
  faults_.push_back(std::move(fault));
  armed_.store(true, std::memory_order_release);
}

void FaultPlan::observe(Observer observer) {
  const std::lock_guard lock(mutex_);
  observer_ = std::move(observer);
  armed_.store(true, std::memory_order_release);
}

int64_t FaultPlan::pending() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::count_if(faults_, [](const Fault& f) { return f.count > 0; });
}

// Fires outside the lock: a call may reach() or arm() again. One pass counts for
// every fault that matches it, also when the first of them throws. The observer hears
// of passes one by one.
FaultPlan::Ask FaultPlan::pass(std::string_view name, int rank, int64_t index) {
  std::vector<Fault> due;
  {
    const std::lock_guard lock(mutex_);
    if (observer_) observer_(name, rank, index);
    for (Fault& fault : faults_) {
      const bool matches = fault.name == name &&
                           (fault.rank < 0 || fault.rank == rank) &&
                           (fault.index < 0 || fault.index == index);
      if (matches && fault.count > 0 && --fault.count == 0) due.push_back(fault);
    }
  }
  std::erase_if(due, [&](const Fault& fault) { return is_spent(fault, rank, index); });
  for (const Fault& fault : due) fire(fault, rank, index);
  for (const Fault& fault : due) {
    if (fault.action == Fault::Action::kFlip) return Ask::kFlip;
    if (fault.action == Fault::Action::kDrop) return Ask::kDrop;
  }
  return Ask::kNothing;
}

}  // namespace cohort
