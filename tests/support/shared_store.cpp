// SPDX-License-Identifier: Apache-2.0
#include "support/shared_store.h"

#include <sys/mman.h>
#include <time.h>

#include <atomic>
#include <cstring>
#include <optional>

#include "cohort/core/error.h"

namespace cohort::test {

struct SharedStore::Table {
  static constexpr int kEntries = 2048;
  struct Entry {
    std::atomic<int> ready;
    int64_t amount;  // a counter's; else the bytes in `value`
    char key[80];
    char value[1024];
  };
  std::atomic<int> count;
  Entry entries[kEntries];

  Entry& claim(const std::string& key) {
    const int index = count.fetch_add(1);
    COHORT_CHECK(index < kEntries && key.size() < sizeof(Entry::key), key);
    std::strcpy(entries[index].key, key.c_str());
    return entries[index];
  }
  // The last value set.
  std::optional<std::string> find(const std::string& key) const {
    std::optional<std::string> found;
    for (int i = 0; i < count.load() && i < kEntries; ++i) {
      const Entry& entry = entries[i];
      if (entry.ready.load() == 1 && key == entry.key) {
        found = std::string(entry.value, static_cast<size_t>(entry.amount));
      }
    }
    return found;
  }
};

SharedStore::SharedStore() {
  void* data = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  COHORT_CHECK(data != MAP_FAILED, "no shared memory");
  table_ = static_cast<Table*>(data);
}

SharedStore::~SharedStore() { munmap(table_, sizeof(Table)); }

void SharedStore::set(const std::string& key, const std::string& value) {
  auto& entry = table_->claim(key);
  COHORT_CHECK(value.size() <= sizeof(entry.value), key);
  std::memcpy(entry.value, value.data(), value.size());
  entry.amount = static_cast<int64_t>(value.size());
  entry.ready.store(1);
}

std::string SharedStore::get(const std::string& key,
                             std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (std::chrono::steady_clock::now() < end) {
    if (auto value = table_->find(key)) return *value;
    const timespec pause{.tv_sec = 0, .tv_nsec = 200'000};
    nanosleep(&pause, nullptr);
  }
  throw CommError(text("[test.store] key '", key, "' did not appear"));
}

bool SharedStore::has(const std::string& key) { return table_->find(key).has_value(); }

// A counter is the sum of its entries up to and with one's own.
int64_t SharedStore::add(const std::string& key, int64_t amount) {
  auto& own = table_->claim(key);
  own.amount = amount;
  own.ready.store(2);
  int64_t sum = 0;
  for (auto* entry = table_->entries; entry <= &own; ++entry) {
    while (entry->ready.load() == 0) {
    }
    if (entry->ready.load() == 2 && key == entry->key) sum += entry->amount;
  }
  return sum;
}

}  // namespace cohort::test
