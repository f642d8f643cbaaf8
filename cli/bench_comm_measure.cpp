// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <numeric>
#include <thread>

#include "cli/bench_comm.h"
#include "cohort/comm/peer_memory.h"
#include "cohort/core/error.h"

namespace cohort::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTurns = 9;         // for every candidate
constexpr int kMostCalls = 2000;  // in one turn

// Something to time: one call on this rank.
struct Candidate {
  BenchCommRow row;
  std::function<void()> call;
  std::vector<double> seconds;
};

// The least any all-reduce of shared memory must do: meet, add, meet.
class Limit {
 public:
  Limit(Communicator& comm, PeerMemory& peers, const Tensor& tensor)
      : rank_(comm.rank()), flags_(comm.allocate({kStride}, at::kLong)) {
    for (const auto& view : peers.map_peers(flags_)) {
      counters_.push_back(reinterpret_cast<std::atomic<int64_t>*>(view.data_ptr()));
      keep_.push_back(view);
    }
    for (const auto& view : peers.map_peers(tensor)) {
      data_.push_back(static_cast<float*>(view.data_ptr()));
      keep_.push_back(view);
    }
    const auto shard = shard_range(tensor.numel(), rank_, comm.size());
    begin_ = shard.begin;
    end_ = shard.end;
    if (tensor.numel() < 1024 * comm.size()) {  // smaller than the library's shards
      begin_ = tensor.numel() * rank_ / comm.size();
      end_ = tensor.numel() * (rank_ + 1) / comm.size();
    }
  }

  void run() {
    meet();
    if (data_.size() == 2) {
      add_pair(data_[0], data_[1]);
    } else {
      add_all();
    }
    meet();
  }

 private:
  static constexpr int64_t kStride = 16;
  static constexpr int kPatience = 100'000;

  void meet() {
    counters_[rank_]->store(++round_, std::memory_order_release);
    for (auto* counter : counters_) {
      // With fewer cores than ranks a bare spinner would wait for its own time slice.
      for (int spins = 0; counter->load(std::memory_order_acquire) < round_; ++spins) {
        if (spins > kPatience) std::this_thread::yield();
      }
    }
  }
  void add_pair(float* a, float* b) {
#pragma GCC ivdep
    for (int64_t i = begin_; i < end_; ++i) {
      const float sum = a[i] + b[i];
      a[i] = sum;
      b[i] = sum;
    }
  }
  // Block by block, so that the sums stay in cache.
  void add_all() {
    constexpr int64_t kBlock = 2048;
    float sum[kBlock];
    for (int64_t at = begin_; at < end_; at += kBlock) {
      const int64_t count = std::min(kBlock, end_ - at);
      std::copy_n(data_[0] + at, count, sum);
      for (size_t r = 1; r < data_.size(); ++r) {
        for (int64_t i = 0; i < count; ++i) sum[i] += data_[r][at + i];
      }
      for (float* data : data_) std::copy_n(sum, count, data + at);
    }
  }

  int rank_;
  Tensor flags_;
  std::vector<Tensor> keep_;
  std::vector<std::atomic<int64_t>*> counters_;
  std::vector<float*> data_;
  int64_t begin_ = 0, end_ = 0;
  int64_t round_ = 0;
};

// bytes is the larger side, as in nccl-tests.
std::function<void()> make_call(Communicator& comm, const std::string& op,
                                int64_t bytes, const std::string& memory, int gpu) {
  const int n = comm.size();
  const int64_t part = std::max<int64_t>(bytes / 4 / n, 1);
  const auto make = [&](int64_t numel) {
    if (memory == "gpu")
      return comm.allocate({numel}, at::kFloat,
                           at::Device(at::kCUDA, static_cast<at::DeviceIndex>(gpu)));
    return memory == "shared" ? comm.allocate({numel}, at::kFloat)
                              : at::zeros({numel}, at::kFloat);
  };
  if (op == "barrier") return [&comm] { comm.barrier().wait(); };
  if (op == "all_reduce") {
    return [&comm, x = make(std::max<int64_t>(bytes / 4, 1))]() mutable {
      comm.all_reduce(x, ReduceOp::kSum).wait();
    };
  }
  if (op == "broadcast") {
    return [&comm, x = make(std::max<int64_t>(bytes / 4, 1))]() mutable {
      comm.broadcast(x, 0).wait();
    };
  }
  if (op == "reduce_scatter") {
    return [&comm, in = make(part * n), out = make(part)]() mutable {
      comm.reduce_scatter(out, in, ReduceOp::kSum).wait();
    };
  }
  if (op == "all_gather") {
    return [&comm, shard = make(part), out = make(part * n)]() mutable {
      comm.all_gather(out, shard).wait();
    };
  }
  if (op == "all_to_all") {
    return [&comm, in = make(part * n), out = make(part * n)]() mutable {
      comm.all_to_all(out, in).wait();
    };
  }
  return [&comm, n, in = make(std::max<int64_t>(bytes / 4, 1)),
          out = make(std::max<int64_t>(bytes / 4, 1))]() mutable {
    const Transfer send[] = {{(comm.rank() + 1) % n, in}};
    const Transfer receive[] = {{(comm.rank() + n - 1) % n, out}};
    comm.exchange(send, receive).wait();
  };
}

double time_call(const std::function<void()>& call) {
  const auto begin = Clock::now();
  call();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// How many calls make a turn: rank 0's guess, the same on all ranks.
int64_t calls_a_turn(Communicator& comm, const Candidate& candidate,
                     double turn_seconds) {
  double least = 1e9;
  for (int i = 0; i < 3; ++i) least = std::min(least, time_call(candidate.call));
  const double calls = std::clamp<double>(turn_seconds / least, 1, kMostCalls);
  auto count = at::full({1}, static_cast<int64_t>(calls), at::kLong);
  comm.broadcast(count, 0).wait();
  return count.item<int64_t>();
}

BenchCommRow summarize(Candidate& candidate) {
  auto& seconds = candidate.seconds;
  std::sort(seconds.begin(), seconds.end());
  BenchCommRow row = candidate.row;
  const auto at = [&](double share) {
    return seconds[std::min(
        seconds.size() - 1,
        static_cast<size_t>(share * static_cast<double>(seconds.size())))];
  };
  row.p50 = at(0.5) * 1e6;
  row.p99 = at(0.99) * 1e6;
  row.mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) /
             static_cast<double>(seconds.size()) * 1e6;
  row.algbw = static_cast<double>(row.bytes) / at(0.5) / 1e9;
  row.busbw = row.algbw * bus_factor(row.op, row.ranks);
  return row;
}

// All candidates of one operation and size, in turns: what disturbs the machine
// disturbs them alike.
void measure_together(Communicator& comm, std::vector<Candidate>& candidates,
                      double turn_seconds) {
  std::vector<int64_t> calls;
  for (const auto& candidate : candidates) {
    calls.push_back(calls_a_turn(comm, candidate, turn_seconds));
  }
  for (int turn = 0; turn < kTurns; ++turn) {
    for (size_t c = 0; c < candidates.size(); ++c) {
      comm.barrier().wait();
      candidates[c].call();  // warm up
      for (int64_t i = 0; i < calls[c]; ++i) {
        candidates[c].seconds.push_back(time_call(candidates[c].call));
      }
    }
  }
  comm.barrier().wait();  // nobody may free what a peer still looks at
}

std::vector<Candidate> list_candidates(
    const std::map<std::string, std::unique_ptr<Communicator>>& comms,
    const BenchCommArgs& args, const std::string& op, int64_t bytes) {
  std::vector<Candidate> candidates;
  for (const auto& backend : args.backends) {
    Communicator& comm = *comms.at(backend);
    auto* peers = dynamic_cast<PeerMemory*>(&comm);
    for (const std::string memory : {"gpu", "shared", "ordinary"}) {
      if ((memory == "gpu") != (args.device == "cuda")) continue;
      if (memory == "shared" && (!peers || op == "barrier")) continue;
      candidates.push_back({{backend, op, bytes, comm.size(), memory},
                            make_call(comm, op, bytes, memory, args.gpu),
                            {}});
    }
    const bool has_limit =
        std::any_of(candidates.begin(), candidates.end(),
                    [](const Candidate& c) { return c.row.backend == "limit"; });
    if (!peers || op != "all_reduce" || has_limit) continue;
    auto tensor = comm.allocate({std::max<int64_t>(bytes / 4, 1)}, at::kFloat);
    auto limit = std::make_shared<Limit>(comm, *peers, tensor);
    candidates.push_back(
        {{"limit", op, bytes, comm.size(), "shared"}, [limit] { limit->run(); }, {}});
  }
  return candidates;
}

}  // namespace

double bus_factor(const std::string& op, int ranks) {
  const double n = ranks;
  if (op == "all_reduce") return 2 * (n - 1) / n;
  if (op == "broadcast" || op == "exchange" || op == "barrier") return 1;
  return (n - 1) / n;
}

void measure_comm(const BenchCommArgs& args, const MakeCommunicator& make,
                  const EmitRow& emit) {
  at::set_num_threads(1);
  std::map<std::string, std::unique_ptr<Communicator>> comms;
  for (const auto& backend : args.backends) comms[backend] = make(backend);
  Communicator& comm = *comms.at(args.backends.front());
  for (const auto& op : args.ops) {
    const bool moves = op != "barrier";
    for (const int64_t bytes : moves ? args.bytes : std::vector<int64_t>{0}) {
      auto candidates = list_candidates(comms, args, op, bytes);
      measure_together(comm, candidates, args.turn_seconds);
      for (auto& candidate : candidates) {
        if (comm.rank() == 0) emit(summarize(candidate));
      }
    }
  }
  comm.barrier().wait();
}

}  // namespace cohort::cli
