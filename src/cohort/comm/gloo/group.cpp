// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/gloo/group.h"

#include <ATen/ops/zeros.h>
#define USE_C10D_GLOO
#include <sched.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "cohort/comm/endpoint.h"
#include "cohort/comm/gloo/quiet.h"
#include "cohort/core/error.h"

namespace cohort::gloo_backend {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<uint8_t>;

// A tag that exchange() does not use.
constexpr int kFarewellTag = 0x7fff'0000;

// c10d counts collectives to match them among ranks; we say the number.
class TaggedGroup : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  void tag_next(uint32_t tag) { collectiveCounter_ = tag; }
};

// c10d's view of our store, for the time of connecting.
class StoreAdapter : public c10d::Store {
 public:
  StoreAdapter(cohort::Store& store, std::string prefix, milliseconds timeout)
      : c10d::Store(timeout), store_(store), prefix_(std::move(prefix)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<StoreAdapter>(store_, prefix_, timeout_);
  }
  void set(const std::string& key, const Bytes& value) override {
    store_.set(prefix_ + key, {value.begin(), value.end()});
  }
  Bytes get(const std::string& key) override {
    const std::string value = store_.get(prefix_ + key, timeout_);
    return {value.begin(), value.end()};
  }
  int64_t add(const std::string& key, int64_t value) override {
    return store_.add(prefix_ + key, value);
  }
  bool check(const std::vector<std::string>& keys) override {
    for (const auto& key : keys) {
      if (!store_.has(prefix_ + key)) return false;
    }
    return true;
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys,
            const milliseconds& timeout) override {
    for (const auto& key : keys) store_.get(prefix_ + key, timeout);
  }
  bool deleteKey(const std::string&) override { return false; }
  int64_t getNumKeys() override { return 0; }

 private:
  cohort::Store& store_;
  std::string prefix_;
};

// Gloo's reading thread asks for a connection's lock again and again while a writer has
// it. Where it displaced that very writer from a core, all wait for the scheduler's
// next tick (4 ms). A thread of the batch class runs when woken, but displaces nobody.
class BatchThreads {
 public:
  BatchThreads() : before_(sched_getscheduler(0)) {
    sched_getparam(0, &param_);
    if (before_ == SCHED_OTHER) sched_setscheduler(0, SCHED_BATCH, &param_);
  }
  ~BatchThreads() {
    if (before_ == SCHED_OTHER) sched_setscheduler(0, before_, &param_);
  }

 private:
  int before_;
  sched_param param_{};
};

std::shared_ptr<::gloo::transport::Device> make_device(const GroupOptions& options) {
  using Group = c10d::ProcessGroupGloo;
  const BatchThreads inherited;  // by the thread that the device starts
  return options.interface.empty() ? Group::createDeviceForHostname(options.address)
                                   : Group::createDeviceForInterface(options.interface);
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> open_group(cohort::Store& store,
                                             const GroupOptions& options) {
  using Group = c10d::ProcessGroupGloo;
  auto group_options = Group::Options::create(options.timeout);
  group_options->threads = 1;  // operations finish in the order they were started
  group_options->devices.push_back(make_device(options));
  auto adapter =
      c10::make_intrusive<StoreAdapter>(store, options.prefix, options.timeout);
  silence_c10d();
  const QuietConnect quiet;
  return c10::make_intrusive<TaggedGroup>(adapter, options.rank, options.size,
                                          group_options);
}

void tag_next(c10d::Backend& group, uint32_t tag) {
  static_cast<TaggedGroup&>(group).tag_next(tag);
}

int message_tag(int64_t bytes, at::ScalarType dtype) {
  const uint64_t mixed = (static_cast<uint64_t>(bytes) * 64 + static_cast<int>(dtype)) *
                         0x9e3779b97f4a7c15u;
  return static_cast<int>(mixed >> 34);  // 30 bits
}

// Gloo closes all connections of a group when a receive of the application runs out
// of time. So: a receive that nobody answers, from the first peer that is still
// connected.
void close_connections(c10d::Backend& group) {
  for (int peer = 0; peer < group.getSize(); ++peer) {
    if (peer == group.getRank()) continue;
    try {
      std::vector<at::Tensor> nothing{at::zeros({1}, at::kByte)};
      group.recv(nothing, peer, kFarewellTag)->wait(milliseconds(1));
    } catch (const std::exception&) {
      // That is the purpose: it ran out of time, or was closed already.
    }
  }
}

}  // namespace cohort::gloo_backend
