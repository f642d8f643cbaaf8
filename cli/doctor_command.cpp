// SPDX-License-Identifier: Apache-2.0
#include "doctor_command.h"

#include <ATen/ATen.h>

#include <ostream>

#include "cohort/comm/backends.h"
#include "cohort/comm/local_store.h"
#include "cohort/core/error.h"
#include "cohort/core/json.h"
#include "cohort/engine/cuda/cuda_lane.h"
#include "doctor_checks.h"

namespace cohort::cli {
namespace {

std::vector<Finding> examine(const DoctorOptions& options) {
  std::vector<Finding> findings = {
      {"version", Health::kOk, "cohort " + options.version},
      check_libtorch(),
      check_cores(),
      check_memory(),
      check_shared_memory(),
      check_huge_pages(),
      check_peer_descriptors(),
      check_loopback(),
      check_name_lookup(),
      check_limits(),
      check_gpu(),
  };
  for (const auto& backend : options.backends)
    findings.push_back(check_backend(backend));
  findings.push_back(check_mpi());
  findings.push_back(check_dataset(options.data_dir));
  findings.push_back(check_ccache());
  return findings;
}

// What is said of a finding: in its line, and in JSON.
struct HealthWords {
  const char* mark;
  const char* state;
};

HealthWords words_of(Health health) {
  switch (health) {
    case Health::kOk:
      return {"[ok]", "ok"};
    case Health::kAbsent:
      return {"[--]", "absent"};
    case Health::kBroken:
      return {"[!!]", "broken"};
  }
  throw BugError("[doctor] no such health");
}

void print_json(const Finding& finding, std::ostream& out) {
  out << JsonObject()
             .add("event", "check")
             .add("check", finding.check)
             .add("state", words_of(finding.health).state)
             .add("text", finding.text)
             .add("package", finding.package)
             .text()
      << std::endl;
}

void print_summary(const std::vector<Finding>& findings, std::ostream& out) {
  std::string packages;
  int broken = 0;
  for (const auto& finding : findings) {
    if (finding.health == Health::kBroken) ++broken;
    if (!finding.package.empty()) packages += " " + finding.package;
  }
  if (!packages.empty()) {
    out << "To add what is missing: sudo apt-get install" << packages << "\n";
  }
  if (broken > 0) {
    out << broken << " of these must work before anything can run: see [!!]\n";
  } else {
    out << "Everything a run needs is here.\n";
  }
}

// A world of one rank is all that a process can make alone; NCCL and the driver must
// work for it.
std::string try_nccl() {
  const std::string why = why_no_cuda();
  if (!why.empty()) throw ConfigError(why);
  LocalStore store;
  const auto comm = connect(World{}, store, {.backend = "nccl"});
  Tensor one = at::ones({1}, at::kCUDA);
  comm->all_reduce(one, ReduceOp::kSum).wait();
  if (const float sum = one.item<float>(); sum != 1)
    throw ConfigError(text("an all-reduce of 1 with one rank gave ", sum));
  return "an all-reduce of one rank on one GPU worked";
}

}  // namespace

std::vector<DoctorBackend> known_backends() {
  std::vector<DoctorBackend> known;
  for (const auto& backend : backends()) {
    const std::string fault = backend.fault();
    known.push_back({std::string(backend.name), fault.empty(), fault});
    const bool tries =
        backend.name == "nccl" && fault.empty() && check_gpu().health == Health::kOk;
    if (!tries) continue;
    known.back().version = backend.version();
    known.back().trial = try_nccl;
  }
  return known;
}

int run_doctor(const DoctorOptions& options, std::ostream& out) {
  const auto findings = examine(options);
  bool broken = false;
  for (const auto& finding : findings) {
    broken = broken || finding.health == Health::kBroken;
    if (options.json) {
      print_json(finding, out);
    } else {
      out << words_of(finding.health).mark << " " << finding.text << "\n";
    }
  }
  if (options.json) {
    out << "{\"event\":\"done\",\"exit_code\":" << (broken ? 1 : 0) << "}" << std::endl;
  } else {
    print_summary(findings, out);
  }
  out.flush();
  return broken ? 1 : 0;
}

}  // namespace cohort::cli
