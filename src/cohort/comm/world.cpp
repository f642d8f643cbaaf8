// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/world.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <initializer_list>

#include "cohort/comm/world_env.h"
#include "cohort/core/error.h"

namespace cohort {
namespace {

constexpr int kMaxRanks = 1 << 20;
constexpr int kMaxPort = 65'535;

// A variable that is set, and its value.
struct Setting {
  std::string name;
  std::string value;
};

// Looks variables up and turns them into numbers, with errors that name them.
class VariableReader {
 public:
  explicit VariableReader(const Environment& env) : env_(env) {}

  std::optional<std::string> get(const std::string& name) const {
    auto value = env_(name);
    if (value && value->empty()) return std::nullopt;
    return value;
  }

  // The first of `names` that is set.
  std::optional<Setting> first(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      if (name == nullptr) continue;
      if (auto value = get(name)) return Setting{name, *value};
    }
    return std::nullopt;
  }

  int number(const Setting& setting, int low, int high) const {
    int value = 0;
    const char* end = setting.value.data() + setting.value.size();
    auto [stop, error] = std::from_chars(setting.value.data(), end, value);
    if (error != std::errc() || stop != end || value < low || value > high) {
      throw ConfigError(text("[comm.world] ", setting.name, " is '", setting.value,
                             "'; legal is a whole number from ", low, " to ", high));
    }
    return value;
  }

  std::optional<int> number(std::initializer_list<const char*> names, int low,
                            int high) const {
    auto setting = first(names);
    if (!setting) return std::nullopt;
    return number(*setting, low, high);
  }

 private:
  const Environment& env_;
};

// A launcher, by the variables it sets.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  std::array<const char*, 3> local_rank;  // alternatives
  std::array<const char*, 3> local_size;
  std::array<const char*, 3> job;  // alternatives for what all ranks know
};

constexpr Launcher kTorchrun{"torchrun",           "RANK",
                             "WORLD_SIZE",         {"LOCAL_RANK"},
                             {"LOCAL_WORLD_SIZE"}, {"TORCHELASTIC_RUN_ID"}};
constexpr Launcher kSlurm{"slurm",
                          "SLURM_PROCID",
                          "SLURM_NTASKS",
                          {"SLURM_LOCALID"},
                          {},
                          {"SLURM_JOB_ID", "SLURM_JOBID"}};
// Inside a batch job, mpirun's processes see Slurm's variables of the daemon that
// started them: so MPI's come before Slurm's.
constexpr std::array<Launcher, 3> kMpi{{
    {"openmpi",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     {"OMPI_COMM_WORLD_LOCAL_RANK"},
     {"OMPI_COMM_WORLD_LOCAL_SIZE"},
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"mpich",
     "PMI_RANK",
     "PMI_SIZE",
     {"MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID"},
     {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE"},
     {"PMI_JOBID", "PALS_APID"}},
    {"mvapich2",
     "MV2_COMM_WORLD_RANK",
     "MV2_COMM_WORLD_SIZE",
     {"MV2_COMM_WORLD_LOCAL_RANK"},
     {"MV2_COMM_WORLD_LOCAL_SIZE"},
     {"MPIRUN_ID"}},
}};
constexpr Launcher kPals{"pals",
                         "PALS_RANKID",
                         "PALS_SIZE",
                         {"PALS_LOCAL_RANKID"},
                         {"PALS_LOCAL_SIZE"},
                         {"PALS_APID"}};

bool in_slurm_step(const VariableReader& env) {
  return env.get("SLURM_PROCID") && env.get("SLURM_NTASKS") &&
         env.first({"SLURM_STEP_ID", "SLURM_STEPID"});
}

const Launcher* find_launcher(const VariableReader& env) {
  if (env.get("RANK") || env.get("WORLD_SIZE")) return &kTorchrun;
  for (const Launcher& launcher : kMpi) {
    if (env.get(launcher.rank)) return &launcher;
  }
  if (in_slurm_step(env)) return &kSlurm;
  if (env.get(kPals.rank)) return &kPals;
  return nullptr;
}

void read_rank(const VariableReader& env, const Launcher& launcher, World& world) {
  const auto rank = env.first({launcher.rank}), size = env.first({launcher.size});
  if (!rank || !size) {
    throw ConfigError(text("[comm.world] ", rank ? rank->name : size->name, " is set (",
                           rank ? rank->value : size->value, ") but ",
                           rank ? launcher.size : launcher.rank,
                           " is not; set both or neither"));
  }
  world.size = env.number(*size, 1, kMaxRanks);
  world.rank = env.number(*rank, 0, kMaxRanks);
  if (world.rank >= world.size) {
    throw ConfigError(text("[comm.world] ", rank->name, " is ", world.rank, " but ",
                           size->name, " is ", world.size, "; legal ranks are 0 to ",
                           world.size - 1));
  }
}

bool is_loopback_name(const std::string& host) {
  return host.empty() || host == "localhost" || host == "::1" ||
         host.rfind("127.", 0) == 0;
}

// Ranks of this node. Without variables for it, a run that meets at the loopback
// address is on one node; of any other we can only be sure of ourselves.
void read_node(const VariableReader& env, const Launcher& launcher, World& world) {
  const bool one_node = is_loopback_name(env.get("MASTER_ADDR").value_or(""));
  const auto& ranks = launcher.local_rank;
  const auto& sizes = launcher.local_size;
  auto local_size = env.number({sizes[0], sizes[1], sizes[2]}, 1, kMaxRanks);
  auto local_rank = env.number({ranks[0], ranks[1], ranks[2]}, 0, kMaxRanks);
  auto node = env.number({"GROUP_RANK", "SLURM_NODEID"}, 0, kMaxRanks);
  auto tasks = env.first({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (&launcher == &kSlurm && tasks && node) {
    const auto counts = slurm_tasks(tasks->value);
    if (*node < static_cast<int>(counts.size())) local_size = counts[*node];
    world.num_nodes = static_cast<int>(counts.size());
  }
  world.local_size = local_size.value_or(one_node ? world.size : 1);
  world.local_rank = local_rank.value_or(one_node ? world.rank : 0);
  if (world.local_size > world.size || world.local_rank >= world.local_size) {
    throw ConfigError(text("[comm.world] local rank ", world.local_rank, " of ",
                           world.local_size, " on this node in a world of ", world.size,
                           "; legal: local rank < local size <= world size"));
  }
  if (&launcher != &kSlurm || !tasks) {
    world.num_nodes = (world.size + world.local_size - 1) / world.local_size;
  }
  world.num_nodes =
      env.number({"GROUP_WORLD_SIZE"}, 1, kMaxRanks).value_or(world.num_nodes);
  world.node_rank = node.value_or(world.rank / world.local_size);
}

uint32_t fnv1a(std::string_view bytes) {
  uint32_t hash = 2166136261u;
  for (unsigned char byte : bytes) hash = (hash ^ byte) * 16777619u;
  return hash;
}

// What all ranks of a job know and other jobs do not: the ground of token and port
// where a launcher gives neither. mpirun's ranks of a node have one parent.
std::string job_name(const VariableReader& env, const Launcher& launcher) {
  const auto& names = launcher.job;
  auto job = env.first({names[0], names[1], names[2]});
  if (!job) job = Setting{"parent", std::to_string(getppid())};
  std::string name = text(launcher.name, "/", job->value);
  if (&launcher == &kSlurm) {
    name += "." + env.first({"SLURM_STEP_ID", "SLURM_STEPID"})->value;
  }
  return name;
}

// The first host of the job, and 15000 + the last four digits of the job's number:
// the convention of PyTorch Lightning and others.
bool read_slurm_master(const VariableReader& env, World& world) {
  const auto list =
      env.first({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  const auto job = env.first({"SLURM_JOB_ID", "SLURM_JOBID"});
  if (!list || !job) return false;
  world.master_addr = slurm_hosts(list->value).front();
  if (world.num_nodes == 1) world.master_addr = "127.0.0.1";
  const std::string& id = job->value;
  const std::string tail = id.substr(id.size() - std::min<size_t>(4, id.size()));
  world.master_port = 15'000 + env.number({job->name, tail}, 0, 9'999);
  return true;
}

void read_master(const VariableReader& env, const Launcher& launcher, World& world) {
  const auto addr = env.get("MASTER_ADDR");
  const auto port = env.number({"MASTER_PORT"}, 1, kMaxPort);
  if (&launcher == &kTorchrun) {
    if (!port && world.size > 1) {
      throw ConfigError(text("[comm.world] RANK and WORLD_SIZE are set but MASTER_PORT",
                             " is not; legal is a port from 1 to ", kMaxPort));
    }
  } else if (!addr && !read_slurm_master(env, world)) {
    if (world.local_size < world.size) {
      throw ConfigError(text("[comm.world] ", launcher.name, " started ", world.size,
                             " ranks, ", world.local_size, " of them on this node, and",
                             " MASTER_ADDR is not set; set it to rank 0's host"));
    }
    world.master_port = 20'000 + fnv1a(job_name(env, launcher)) % 10'000;
  }
  if (addr) world.master_addr = *addr;
  if (port) world.master_port = *port;
  if (world.master_port == 0 && world.size > 1) {
    world.master_port = 20'000 + fnv1a(job_name(env, launcher)) % 10'000;
  }
}

bool is_true(const std::optional<std::string>& value) {
  return value && (*value == "True" || *value == "true" || *value == "1");
}

void read_token(const VariableReader& env, const Launcher& launcher, World& world) {
  const auto ours = env.get("COHORT_RUN_TOKEN");
  world.launcher = ours ? "cohort" : launcher.name;
  if (ours) {
    world.token = *ours;
  } else if (&launcher == &kTorchrun) {
    world.token = text("torchrun/", env.get("TORCHELASTIC_RUN_ID").value_or("none"),
                       "/", world.master_addr, ":", world.master_port);
  } else {
    world.token = job_name(env, launcher);
  }
  world.generation = env.number({"COHORT_GENERATION", "TORCHELASTIC_RESTART_COUNT",
                                 "SLURM_RESTART_COUNT"},
                                0, std::numeric_limits<int>::max())
                         .value_or(0);
}

}  // namespace

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

World world_from(const Environment& variables) {
  const VariableReader env(variables);
  World world;
  const Launcher* launcher = find_launcher(env);
  if (launcher == nullptr) return world;
  read_rank(env, *launcher, world);
  read_node(env, *launcher, world);
  read_master(env, *launcher, world);
  read_token(env, *launcher, world);
  // torchrun's agent, and ours, host the store; elsewhere rank 0 does.
  const bool agent_store = is_true(env.get("TORCHELASTIC_USE_AGENT_STORE"));
  world.hosts_store = world.rank == 0 && world.master_port != 0 && !agent_store;
  return world;
}

World world_from_env() { return world_from(process_environment); }

}  // namespace cohort
