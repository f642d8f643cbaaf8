// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/progress_page.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>

#include "cohort/core/error.h"

namespace cohort {
namespace {

// True: this call raised it.
bool raise_to(std::atomic<int64_t>& value, int64_t to) {
  int64_t seen = value.load();
  while (seen < to)
    if (value.compare_exchange_weak(seen, to)) return true;
  return false;
}

constexpr int64_t kMark = 0x636f686f7274'0004;  // and the version, in its last bytes

}  // namespace

// A line of the cache for each, so that ranks do not slow one another down.
struct ProgressPage::Page {
  alignas(64) int64_t mark = kMark;
  std::atomic<int64_t> highest{0};
  std::atomic<int64_t> generation{0};
  std::atomic<int64_t> validated{0};
  std::atomic<int64_t> finished{0};
  struct alignas(64) RankEntry {
    std::atomic<int64_t> committed{0};
  } places[kMostRanks];
};
static_assert(std::atomic<int64_t>::is_always_lock_free);

ProgressPage::ProgressPage() : fd_(::memfd_create("cohort-progress", MFD_CLOEXEC)) {
  if (!fd_ || ::fallocate(fd_.get(), 0, 0, sizeof(Page)) != 0) {
    throw CommError(
        text("[elastic.progress_page] no shared memory: ", strerror(errno)));
  }
  map();
  new (page_) Page;
}

ProgressPage::ProgressPage(UniqueFd fd) : fd_(std::move(fd)) {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0 ||
      info.st_size != static_cast<off_t>(sizeof(Page))) {
    throw CommError(
        "[elastic.progress_page] the agent's progress page has another size than ours");
  }
  map();
  if (page_->mark == kMark) return;
  ::munmap(page_, sizeof(Page));
  throw CommError(
      "[elastic.progress_page] the agent's progress page is of another version");
}

ProgressPage::~ProgressPage() { ::munmap(page_, sizeof(Page)); }

void ProgressPage::map() {
  void* page =
      ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (page == MAP_FAILED) {
    throw CommError(text("[elastic.progress_page] mmap: ", strerror(errno)));
  }
  page_ = static_cast<Page*>(page);
}

void ProgressPage::commit(int rank, int64_t steps, int generation) {
  raise_to(page_->highest, steps);
  raise_to(page_->generation, generation);
  if (rank < 0 || rank >= kMostRanks) return;
  page_->places[rank].committed.store(steps);
}

bool ProgressPage::validate(int64_t epoch) { return raise_to(page_->validated, epoch); }

bool ProgressPage::finish() { return raise_to(page_->finished, 1); }

int64_t ProgressPage::validated() const { return page_->validated.load(); }

int64_t ProgressPage::highest() const { return page_->highest.load(); }

int ProgressPage::generation() const {
  return static_cast<int>(page_->generation.load());
}

int64_t ProgressPage::committed(int rank) const {
  return page_->places[rank].committed.load();
}

}  // namespace cohort
