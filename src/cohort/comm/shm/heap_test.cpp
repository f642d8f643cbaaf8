// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/shm/heap.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "cohort/core/error.h"

namespace cohort::shm {
namespace {

constexpr size_t kHeap = size_t{64} << 20;

size_t used_bytes(const Heap& heap) {
  struct stat status;
  EXPECT_EQ(fstat(heap.fd(), &status), 0);
  return static_cast<size_t>(status.st_blocks) * 512;
}

bool is_zero(const void* data, size_t bytes) {
  const auto* begin = static_cast<const char*>(data);
  return std::all_of(begin, begin + bytes, [](char c) { return c == 0; });
}

TEST(HeapTest, BlocksAreZeroedAlsoWhenUsedAgain) {
  Heap heap(kHeap);
  for (int i = 0; i < 3; ++i) {
    void* block = heap.allocate(100'000);
    EXPECT_TRUE(is_zero(block, 100'000));
    std::memset(block, 1, 100'000);
    heap.release(block);
  }
}

TEST(HeapTest, PagesAreThereBeforeUseAndGivenBackAfter) {
  Heap heap(kHeap);
  const size_t before = used_bytes(heap);
  void* block = heap.allocate(1 << 20);
  EXPECT_EQ(used_bytes(heap), before + (1 << 20));
  heap.release(block);
  EXPECT_EQ(used_bytes(heap), before);
}

TEST(HeapTest, FreedNeighboursBecomeOneBlock) {
  Heap heap(kHeap);
  constexpr size_t kPart = kHeap / 8;
  void* blocks[7];
  for (auto& block : blocks) block = heap.allocate(kPart);
  EXPECT_THROW(heap.allocate(2 * kPart), ConfigError);
  for (const int i : {1, 3, 2, 0, 6, 5, 4}) heap.release(blocks[i]);
  void* whole = heap.allocate(7 * kPart);
  EXPECT_TRUE(is_zero(whole, 7 * kPart));
  heap.release(whole);
}

TEST(HeapTest, TooMuchIsRefusedWithTheSizeOfTheHeap) {
  Heap heap(kHeap);
  try {
    heap.allocate(2 * kHeap);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(kHeap)), std::string::npos);
  }
}

TEST(HeapTest, AnotherMappingSeesTheSameBytes) {
  Heap heap(kHeap);
  const Mapping other(heap.fd(), kHeap);
  auto* block = static_cast<std::byte*>(heap.allocate(10));
  block[3] = std::byte{42};
  EXPECT_EQ(other.data()[block - heap.mapping().data() + 3], std::byte{42});
  EXPECT_EQ(std::memcmp(other.data(), &heap.header(), sizeof(HeapHeader)), 0);
}

}  // namespace
}  // namespace cohort::shm
