// SPDX-License-Identifier: Apache-2.0
// What a checkpoint costs beside bare files, in one run:
//   checkpoint_speed FOLDER [MEGABYTES [WRITERS [READERS]]]
// Prints, of a plain loop and of a checkpoint, rates and the ratio of their times,
// means of four turns: of the copy that training waits for, beside one memory copy into
// warm pages; of writing, as dd bs=1M conv=fdatasync does; of reading, in another
// layout.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <thread>

#include "cohort/checkpoint/load.h"
#include "cohort/core/error.h"
#include "cohort/train/snapshots.h"

namespace {

using cohort::Tensor;
namespace fs = std::filesystem;

constexpr int kTurns = 4;
constexpr int64_t kBlock = 1 << 20;

double seconds_of(const std::function<void()>& work) {
  const auto began = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began)
      .count();
}

void on_threads(int count, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(work, i);
  for (auto& thread : threads) thread.join();
}

// Shard `rank` of `size` of a flat tensor.
std::vector<cohort::StatePiece> shard(const Tensor& whole, int rank, int size) {
  auto piece = cohort::whole_piece("w", whole, cohort::TensorKind::kParameter);
  auto& spec = piece.tensor.spec;
  spec.begin = whole.numel() * rank / size;
  spec.end = whole.numel() * (rank + 1) / size;
  piece.data = whole.narrow(0, spec.begin, spec.end - spec.begin);
  return {piece};
}

void write_plain(const std::string& path, const Tensor& whole) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  const auto* data = static_cast<const char*>(whole.const_data_ptr());
  for (int64_t at = 0; at < static_cast<int64_t>(whole.nbytes()); at += kBlock)
    if (::write(fd, data + at, kBlock) != kBlock) std::exit(1);
  if (::fdatasync(fd) != 0) std::exit(1);
  ::close(fd);
}

void read_plain(const std::string& path, Tensor& out) {
  const int fd = ::open(path.c_str(), O_RDONLY);
  auto* data = static_cast<char*>(out.mutable_data_ptr());
  for (int64_t at = 0; at < static_cast<int64_t>(out.nbytes()); at += kBlock)
    if (::pread(fd, data + at, kBlock, at) != kBlock) std::exit(1);
  ::close(fd);
}

// The next read of it comes from the disk.
void forget(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

void forget_all(const std::string& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) forget(entry.path().string());
}

void save(const std::string& root, int64_t step, const Tensor& whole, int writers) {
  const auto exchanges = cohort::thread_text_exchanges(writers);
  on_threads(writers, [&](int rank) {
    const auto disk = cohort::real_disk();
    cohort::CheckpointWriter writer(root, {}, *disk);
    writer.save({.step = step}, shard(whole, rank, writers), exchanges[rank]);
  });
}

void load(const std::string& root, Tensor& whole, int readers) {
  on_threads(readers, [&](int rank) {
    cohort::Checkpoint saved(*cohort::latest_checkpoint(root));
    auto pieces = shard(whole, rank, readers);
    cohort::load_pieces(saved, pieces);
  });
}

struct Stall {
  std::vector<double> plain, ours;
};

// Both into pages that were written before, in turns.
Stall measure_stall(const Tensor& whole) {
  const auto pieces = shard(whole, 0, 1);
  auto warm = at::zeros_like(whole);
  cohort::Snapshots snapshots(nullptr, 2);
  snapshots.begin({}, pieces);
  for (int64_t step = 0; step < 2; ++step) snapshots.take({.step = step}, pieces);
  Stall stall;
  for (int64_t turn = 0; turn < kTurns; ++turn) {
    stall.plain.push_back(seconds_of([&] {
      std::memcpy(warm.mutable_data_ptr(), whole.const_data_ptr(), whole.nbytes());
    }));
    stall.ours.push_back(
        seconds_of([&] { snapshots.take({.step = 2 + turn}, pieces); }));
  }
  return stall;
}

void row(const char* what, double plain, double ours, double bytes) {
  std::printf("%s: plain %.2f GB/s, checkpoint %.2f GB/s, ratio of times %.2f\n", what,
              bytes / plain / 1e9, bytes / ours / 1e9, ours / plain);
}

double mean(const std::vector<double>& times) {
  return std::accumulate(times.begin(), times.end(), 0.0) /
         static_cast<double>(times.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const int64_t megabytes = argc > 2 ? std::atoll(argv[2]) : 1000;
  const int writers = argc > 3 ? std::atoi(argv[3]) : 1;
  const int readers = argc > 4 ? std::atoi(argv[4]) : 3;
  const std::string folder = std::string(argv[1]) + "/checkpoint_speed";
  fs::create_directories(folder);
  auto whole = at::rand({megabytes * kBlock / 4});
  auto back = at::zeros_like(whole);
  const Stall stall = measure_stall(whole);
  std::vector<double> plain_write, write, plain_read, read, plain_cold, cold;
  for (int turn = 0; turn < kTurns; ++turn) {
    whole.add_(1);  // nothing may be shared with the turn before
    const auto plain = folder + "/plain", root = folder + "/run" + std::to_string(turn);
    if (turn % 2 == 0)
      plain_write.push_back(seconds_of([&] { write_plain(plain, whole); }));
    write.push_back(seconds_of([&] { save(root, turn, whole, writers); }));
    if (turn % 2 == 1)
      plain_write.push_back(seconds_of([&] { write_plain(plain, whole); }));
    plain_read.push_back(seconds_of([&] { read_plain(plain, back); }));
    back.zero_();
    read.push_back(seconds_of([&] { load(root, back, readers); }));
    if (!at::equal(back, whole)) return 1;
    forget_all(folder);
    // A disk is fast at first: so both sides take turns to begin.
    if (turn % 2 == 0)
      plain_cold.push_back(seconds_of([&] { read_plain(plain, back); }));
    cold.push_back(seconds_of([&] { load(root, back, readers); }));
    if (turn % 2 == 1)
      plain_cold.push_back(seconds_of([&] { read_plain(plain, back); }));
    fs::remove_all(folder + "/run" + std::to_string(turn));
    fs::remove(plain);
  }
  fs::remove_all(folder);
  const auto bytes = static_cast<double>(whole.nbytes());
  row("stall", mean(stall.plain), mean(stall.ours), bytes);
  row("write", mean(plain_write), mean(write), bytes);
  row("read from memory", mean(plain_read), mean(read), bytes);
  row("read from disk", mean(plain_cold), mean(cold), bytes);
  return 0;
}
