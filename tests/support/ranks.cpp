// SPDX-License-Identifier: Apache-2.0
#include "support/ranks.h"

#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest-spi.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <new>
#include <thread>

#include "cohort/comm/gloo/gloo.h"
#include "cohort/comm/gpu_relay.h"
#include "cohort/comm/gpu_windows.h"
#include "cohort/comm/nccl/nccl.h"
#include "cohort/comm/shm/shm.h"
#include "cohort/comm/world.h"
#include "cohort/core/error.h"
#include "cohort/core/testing_long_form.h"
#include "support/gpu_tensors.h"
#include "support/shared_store.h"

namespace cohort::test {
namespace {

#if defined(__SANITIZE_THREAD__)
// LibTorch's own allocator hands memory from one thread to another where the sanitizer
// does not see it, and then every use of it looks like a race.
class SeenAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = nullptr;
    if (bytes > 0 && ::posix_memalign(&memory, 64, bytes) != 0) throw std::bad_alloc();
    return {memory, memory, &std::free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

const bool allocations_are_seen = [] {
  static SeenAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/200);
  return true;
}();
#endif

using namespace std::chrono_literals;
using Make = std::unique_ptr<Communicator> (*)(const cohort::World&, Store&,
                                               const ConnectOptions&);

constexpr auto kDeadline = 60s;
constexpr auto kGpuDeadline = 300s;

// A backend joins the suite as one row.
struct Backend {
  const char* name;
  bool threads;    // ranks may be threads of one process
  bool processes;  // ranks may be processes
  bool checks;     // compares calls and names missing ranks
  Make make;       // null: local, whose ranks are all made at once
};

constexpr Backend kBackends[] = {
    {"local", true, false, true, nullptr},
    {"shm", true, true, true, make_shm},
    // Gloo itself is not made for several ranks in one process.
    {"gloo", false, true, false, make_gloo},
};
// Needs a GPU, which all of its ranks share.
constexpr Backend kNccl = {"nccl", false, true, false, make_nccl};

bool needs_gpu(const World& world) {
  return world.backend == kNccl.name || world.windows || world.relay;
}

bool tests_gpu() { return std::getenv("COHORT_TEST_GPU") != nullptr; }

// Why a world cannot be had here. CUDA must not be started in a process that forks.
std::string fault_of(const World& world) {
  if (!needs_gpu(world)) return "";
  const std::string fault = nccl_fault();  // the same as for all that needs CUDA
  if (!fault.empty()) return text(world.backend, " ", fault);
  return ::access("/dev/nvidia0", F_OK) == 0 ? "" : "no GPU";
}

const Backend& backend_of(const World& world) {
  for (const auto& backend : kBackends) {
    if (world.backend == backend.name) return backend;
  }
  if (world.backend == kNccl.name) return kNccl;
  throw std::runtime_error("no backend " + world.backend);
}

// With tensors of the GPU, and with those of the CPU.
std::vector<World> gpu_worlds(const std::vector<int>& sizes) {
  std::set<int> few;  // several ranks take turns on one GPU
  for (const int size : sizes) few.insert(size < 3 ? size : 4);
  std::vector<World> worlds;
  for (const int size : few) {
    worlds.push_back({kNccl.name, size, Kind::kProcesses, 20s, /*gpu=*/true});
    if (size == 1) continue;  // a rank alone has no windows and no relay
    worlds.push_back({"shm", size, Kind::kProcesses, 20s, /*gpu=*/true,
                      /*windows=*/true});
    for (const char* host : {"shm", "gloo"})
      worlds.push_back({host, size, Kind::kProcesses, 20s, /*gpu=*/true,
                        /*windows=*/false, /*relay=*/true});
  }
  if (few.contains(2)) {
    worlds.push_back({kNccl.name, 2, Kind::kProcesses});
    worlds.push_back({"shm", 2, Kind::kProcesses, 20s, /*gpu=*/false,
                      /*windows=*/true});
  }
  return worlds;
}

std::vector<World> list_worlds(const std::vector<int>& sizes, bool only_checked) {
  if (tests_gpu()) return only_checked ? std::vector<World>() : gpu_worlds(sizes);
  std::vector<World> worlds;
  for (const auto& backend : kBackends) {
    if (only_checked && !backend.checks) continue;
    for (const int size : sizes) {
      // In the short form threads of local alone: three ranks are an odd number, too.
      if (size == 5 && !is_long() && backend.processes) continue;
      if (backend.threads) worlds.push_back({backend.name, size, Kind::kThreads});
      if (backend.processes) worlds.push_back({backend.name, size, Kind::kProcesses});
    }
  }
  return worlds;
}

std::unique_ptr<Communicator> make_rank(const World& world, int rank, int generation,
                                        Store& store) {
  cohort::World spec;
  spec.rank = spec.local_rank = rank;
  spec.size = spec.local_size = world.size;
  spec.generation = generation;
  ConnectOptions options;
  options.backend = world.backend;
  options.timeout = world.timeout;
  options.join_timeout = 20s;
  options.nccl_share_gpu = true;
  auto comm = backend_of(world).make(spec, store, options);
  if (world.windows) {
    auto [able, why_not] = with_gpu_windows(std::move(comm), /*gpu=*/0, options);
    if (!why_not.empty()) throw std::runtime_error("no windows: " + why_not);
    comm = std::move(able);
  }
  if (world.relay) comm = with_gpu_relay(std::move(comm), /*gpu=*/0, options);
  return world.gpu ? with_gpu_tensors(std::move(comm)) : std::move(comm);
}

// One rank, with what it throws as a failure of the test.
void run_rank(int rank, const std::function<void()>& body) {
  SCOPED_TRACE(text("rank ", rank));
  try {
    body();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank << " threw: " << error.what();
  }
}

void run_threads(const World& world, const RankStoreBody& body, Store& store) {
  std::vector<std::unique_ptr<Communicator>> comms(world.size);
  if (!backend_of(world).make) comms = make_local(world.size, world.timeout);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world.size; ++rank) {
    threads.emplace_back([&, rank] {
      run_rank(rank, [&] {
        auto comm = std::move(comms[rank]);
        if (!comm) comm = make_rank(world, rank, 0, store);
        body(*comm, store);
      });
    });
  }
  for (auto& thread : threads) thread.join();
}

struct Child {
  pid_t pid;
  int pipe;
  std::string said;
};

// In the child: runs `work` and writes every failure to the pipe.
[[noreturn]] void run_child(int pipe, const std::function<void()>& work) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  at::set_num_threads(1);
  testing::TestPartResultArray results;
  {
    testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
    try {
      work();
    } catch (const std::exception& error) {  // else the child would go on as its parent
      ADD_FAILURE() << error.what();
    }
  }
  std::string said;
  for (int i = 0; i < results.size(); ++i) {
    const auto& result = results.GetTestPartResult(i);
    const char* file = result.file_name() ? result.file_name() : "";
    said += text(file, ":", result.line_number(), ": ", result.message(), "\n");
  }
  for (size_t at = 0; at < said.size();) {
    const ssize_t written = write(pipe, said.data() + at, said.size() - at);
    if (written <= 0) break;
    at += static_cast<size_t>(written);
  }
  _exit(said.empty() ? 0 : 1);
}

Child fork_child(const std::function<void()>& work) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe");
  std::fflush(nullptr);  // or the child would print it again
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    run_child(ends[1], work);
  }
  close(ends[1]);
  return {pid, ends[0], {}};
}

// Reads until the child has closed its end, or the deadline. False: it hangs.
bool listen(Child& child, std::chrono::steady_clock::time_point end) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd ready{.fd = child.pipe, .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || poll(&ready, 1, static_cast<int>(left.count())) <= 0) {
      return false;
    }
    char buffer[4096];
    const ssize_t got = read(child.pipe, buffer, sizeof(buffer));
    if (got <= 0) return true;
    child.said.append(buffer, static_cast<size_t>(got));
  }
}

// What a thread of the parent held when it was forked stays locked in the child:
// LibTorch's pool, once an operation was large enough to start it, hangs there.
std::string threads_here() {
  const auto tasks =
      std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                    std::filesystem::directory_iterator());
  return tasks > 1 ? text(" (its parent has ", tasks, " threads; legal: 1)") : "";
}

void collect(std::vector<Child>& children, const std::set<int>& may_die,
             std::chrono::seconds deadline = kDeadline) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  for (int i = 0; i < static_cast<int>(children.size()); ++i) {
    Child& child = children[i];
    const bool ended = listen(child, end);
    if (!ended) kill(child.pid, SIGKILL);
    close(child.pipe);
    int status = 0;
    waitpid(child.pid, &status, 0);
    if (!ended) {
      ADD_FAILURE() << "child " << i << " hangs" << threads_here() << "\n"
                    << child.said;
    } else if (WIFSIGNALED(status) && !may_die.contains(i)) {
      ADD_FAILURE() << "child " << i << " died of signal " << WTERMSIG(status);
    } else if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
      ADD_FAILURE() << "child " << i << " exited with " << WEXITSTATUS(status) << "\n"
                    << child.said;
    } else if (may_die.contains(i) && !WIFSIGNALED(status)) {
      ADD_FAILURE() << "child " << i << " should have been killed";
    }
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const World& world) {
  return out << world.backend << (world.windows ? "_windows" : "")
             << (world.relay ? "_relay" : "") << (world.gpu ? "_gpu" : "")
             << (world.kind == Kind::kThreads ? "_threads_" : "_processes_")
             << world.size;
}

std::string world_name(const testing::TestParamInfo<World>& info) {
  return text(info.param);
}

std::vector<World> every_world(const std::vector<int>& sizes) {
  return list_worlds(sizes, false);
}

std::vector<World> every_checked_world(const std::vector<int>& sizes) {
  return list_worlds(sizes, true);
}

std::vector<World> only(Kind kind, std::vector<World> worlds) {
  std::erase_if(worlds, [&](const World& world) { return world.kind != kind; });
  return worlds;
}

std::vector<World> only(std::string_view backend, std::vector<World> worlds) {
  std::erase_if(worlds, [&](const World& world) { return world.backend != backend; });
  return worlds;
}

std::vector<World> but(std::string_view backend, std::vector<World> worlds) {
  std::erase_if(worlds, [&](const World& world) { return world.backend == backend; });
  return worlds;
}

void run_ranks(const World& world, const RankBody& body) {
  run_ranks(world, [&](Communicator& comm, Store&) { body(comm); });
}

void run_ranks(const World& world, const RankStoreBody& body,
               const std::set<int>& may_die) {
  const std::string fault = fault_of(world);
  if (!fault.empty()) GTEST_SKIP() << fault;
  SharedStore store;
  std::vector<Child> children;
  if (world.kind == Kind::kThreads) {
    children.push_back(fork_child([&] { run_threads(world, body, store); }));
  } else {
    for (int rank = 0; rank < world.size; ++rank) {
      children.push_back(fork_child([&, rank] {
        run_rank(rank, [&] { body(*make_rank(world, rank, 0, store), store); });
      }));
    }
  }
  collect(children, may_die, needs_gpu(world) ? kGpuDeadline : kDeadline);
}

void run_in_child(const std::function<void()>& body) {
  run_in_children(1, [&](size_t) { body(); });
}

void run_in_children(size_t count, const std::function<void(size_t child)>& body) {
  std::vector<Child> children;
  for (size_t i = 0; i < count; ++i)
    children.push_back(fork_child([&, i] { body(i); }));
  collect(children, {});
}

void run_local_ranks(int size, int generation, const RankBody& body) {
  constexpr auto kLateness = 120s;  // how late a rank may be on a busy machine
  run_local_ranks(size, {.timeout = kLateness, .generation = generation}, body);
}

void run_local_ranks(int size, const LocalOptions& options, const RankBody& body) {
  const auto comms = make_local(size, options);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] { run_rank(rank, [&] { body(*comms[rank]); }); });
  for (auto& thread : threads) thread.join();
}

std::unique_ptr<Communicator> connect_again(const World& world, int rank,
                                            int generation, Store& store) {
  return make_rank(world, rank, generation, store);
}

std::string comm_error(const std::function<void()>& function) {
  try {
    function();
  } catch (const CommError& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not a CommError: " << error.what();
    return {};
  }
  ADD_FAILURE() << "no CommError";
  return {};
}

}  // namespace cohort::test
