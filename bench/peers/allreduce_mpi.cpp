// SPDX-License-Identifier: Apache-2.0
// Open MPI's all-reduce, measured as `cohort bench comm` measures Cohort's.
//
//   mpicxx -O2 allreduce_mpi.cpp -o allreduce_mpi
//   mpirun --oversubscribe -n 2 ./allreduce_mpi [BYTES ...]
//
// Each size has nine turns. A turn begins with a barrier and a call that is not timed;
// then rank 0 times every call by itself, for about 60 ms. Rank 0 prints a JSON line
// for each size, with the median of its calls in microseconds (p50).
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kTurns = 9;
constexpr double kTurnSeconds = 0.06;
constexpr double kMaxCallsPerTurn = 2000;

double time_call(std::vector<float>& values) {
  const double begin = MPI_Wtime();
  MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT,
                MPI_SUM, MPI_COMM_WORLD);
  return MPI_Wtime() - begin;
}

// Rank 0's estimate, which all ranks use.
int calls_per_turn(std::vector<float>& values) {
  double shortest = kTurnSeconds;
  for (int i = 0; i < 3; ++i) shortest = std::min(shortest, time_call(values));
  int calls = static_cast<int>(std::min(kTurnSeconds / shortest, kMaxCallsPerTurn));
  MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return calls;
}

std::vector<double> measure(long bytes) {
  std::vector<float> values(bytes / sizeof(float));
  const int calls = calls_per_turn(values);
  std::vector<double> seconds;
  for (int turn = 0; turn < kTurns; ++turn) {
    MPI_Barrier(MPI_COMM_WORLD);
    time_call(values);  // warm up
    for (int i = 0; i < calls; ++i) seconds.push_back(time_call(values));
  }
  return seconds;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<long> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atol(argv[i]));
  if (sizes.empty()) sizes = {4'000, 400'000, 4'000'000, 25'000'000, 100'000'000};
  for (const long bytes : sizes) {
    const auto seconds = measure(bytes);
    if (rank != 0) continue;
    std::printf(
        "{\"op\": \"all_reduce\", \"bytes\": %ld, \"ranks\": %d, \"calls\": %zu, "
        "\"p50\": %.3f}\n",
        bytes, ranks, seconds.size(), 1e6 * median(seconds));
    std::fflush(stdout);
  }
  MPI_Finalize();
}
