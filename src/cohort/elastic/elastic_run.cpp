// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "cohort/comm/world.h"
#include "cohort/core/error.h"
#include "cohort/core/first_line.h"
#include "cohort/core/loaded_libtorch.h"
#include "cohort/core/processor.h"
#include "cohort/elastic.h"
#include "cohort/elastic/membership.h"
#include "cohort/elastic/watched_store.h"
#include "cohort/engine/agreement.h"
#include "cohort/engine/optimizer_bytes.h"

namespace cohort {
namespace {

std::string broadcast_bytes(std::string bytes, int root, Communicator& comm) {
  Tensor size = at::full({1}, static_cast<int64_t>(bytes.size()), at::kLong);
  comm.broadcast(size, root).wait();
  bytes.resize(static_cast<size_t>(size.item<int64_t>()));
  Tensor all =
      at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())}, at::kByte);
  comm.broadcast(all, root).wait();
  return bytes;
}

constexpr int64_t kNoState = -1, kSpoilt = -2;
constexpr int64_t kSampled = 64;  // taken from each parameter, about

}  // namespace

class ElasticRun::Impl {
 public:
  Impl(torch::nn::Module& module, torch::optim::Optimizer& optimizer,
       const ConnectOptions& options)
      : module_(module), options_(options), membership_(Membership::from_env()) {
    if (!membership_ && std::getenv("COHORT_ELASTIC"))
      throw ConfigError("[elastic] a second ElasticRun; legal: one in a process");
    require_built_libtorch();
    describe_processor();
    settle_vector_math();
    kept_.push_back(bytes_of(optimizer));
  }

  void keep(SavedBytes more) {
    if (has_begun_) throw ConfigError("[elastic] keep(); legal: before train()");
    kept_.push_back(std::move(more));
  }

  bool train(const std::function<void(Communicator&)>& body) {
    if (std::exchange(has_begun_, true))
      throw ConfigError("[elastic] train() again; legal: once for each ElasticRun");
    auto world =
        membership_ ? membership_->first_world() : std::optional(world_from_env());
    while (world) {
      try {
        live(*world, body);
        return true;
      } catch (const CommError& error) {
        if (!membership_) throw;
        world = membership_->world_after(error.what());
      }
    }
    return false;
  }

  int64_t steps() const { return steps_; }

  void resumed(int64_t steps) {
    steps_ = steps;
    note_state();
  }

  void commit() {
    ++steps_;
    note_state();
    if (membership_) membership_->committed(steps_);
  }

 private:
  void live(const World& world, const std::function<void(Communicator&)>& body) {
    const auto store = join(world, options_);
    std::optional<WatchedStore> watched;
    if (membership_) watched.emplace(*store, *membership_);
    const auto comm =
        connect(world, watched ? static_cast<Store&>(*watched) : *store, options_);
    std::optional<Membership::Watch> watch;
    if (membership_) watch.emplace(membership_->watch(*comm));
    try {
      agree_on_state(*comm);
      body(*comm);
      if (membership_ && world.rank == 0) membership_->finish();
      leave_world(*comm, membership_.get());
    } catch (const CommError& error) {
      comm->abort(error.what());  // peers that wait for this rank hear of it
      throw;
    }
  }

  // All go on from the furthest step that any rank has whole.
  void agree_on_state(Communicator& comm) {
    require_equal(comm, form(), "model (names, shapes and dtypes), or what is kept,");
    const auto told = gather_numbers(comm, static_cast<uint64_t>(steps_here()));
    const std::vector<int64_t> have(told.begin(), told.end());
    const auto most = std::max_element(have.begin(), have.end());
    const bool is_spoilt = std::count(have.begin(), have.end(), kSpoilt) > 0;
    if (*most < 0 && is_spoilt)
      throw ConfigError(
          text("[elastic] step ", steps_ + 1,
               ": no rank has the weights before it, and none has committed "
               "it; legal: commit() right after the update"));
    const bool all_have_it =
        *most >= 0 && std::count(have.begin(), have.end(), *most) ==
                          static_cast<int64_t>(have.size());
    if (all_have_it)
      restore_buffers();
    else
      take_state(static_cast<int>(most - have.begin()), comm);
  }

  int64_t steps_here() const {
    if (!has_state_) return kNoState;
    return is_unchanged() ? steps_ : kSpoilt;
  }

  void take_state(int root, Communicator& comm) {
    if (comm.rank() == root && has_state_) restore_buffers();
    for (const auto& parameter : module_.parameters())
      take_values(comm, parameter, root);
    for (const auto& buffer : module_.buffers()) take_values(comm, buffer, root);
    for (const auto& part : kept_) {
      const bool gives = comm.rank() == root;
      const std::string bytes = broadcast_bytes(gives ? part.save() : "", root, comm);
      if (!gives) load(part, bytes);
    }
    Tensor steps = at::full({1}, steps_, at::kLong);
    comm.broadcast(steps, root).wait();
    steps_ = steps.item<int64_t>();
    note_state();
  }

  static void load(const SavedBytes& part, const std::string& bytes) {
    try {
      part.load(bytes);
    } catch (const std::exception& error) {
      throw ConfigError(
          text("[elastic] what another rank keeps cannot be taken here: ",
               first_line(error.what()),
               "; legal: the same optimizer, and the same keep(), everywhere"));
    }
  }

  // What must be alike on all ranks.
  uint64_t form() const {
    std::vector<NamedTensor> tensors;
    for (const auto& item : module_.named_parameters())
      tensors.push_back({item.key(), item.value()});
    for (const auto& item : module_.named_buffers())
      tensors.push_back({item.key(), item.value()});
    return form_of(tensors) + kept_.size();
  }

  // A forward changes buffers before its step counts.
  void restore_buffers() {
    const auto buffers = module_.buffers();
    for (size_t i = 0; i < buffers.size(); ++i) buffers[i].detach().copy_(buffers_[i]);
  }

  void note_state() {
    has_state_ = true;
    sample_ = sample();
    buffers_.clear();
    for (const auto& buffer : module_.buffers())
      buffers_.push_back(buffer.detach().clone());
  }

  // Some elements of each parameter, all over it: no update leaves all of them as they
  // were. LibTorch's own counters of changes miss those of its optimizers.
  Tensor sample() const {
    std::vector<Tensor> some;
    for (const auto& parameter : module_.parameters()) {
      const Tensor flat = parameter.detach().reshape({-1});
      const int64_t every = std::max<int64_t>(1, flat.numel() / kSampled);
      some.push_back(flat.slice(0, 0, flat.numel(), every).to(at::kCPU, at::kDouble));
    }
    return at::cat(some);
  }

  // By bits: a NaN is what it was.
  bool is_unchanged() const {
    const Tensor now = sample();
    return now.numel() == sample_.numel() &&
           std::memcmp(now.const_data_ptr(), sample_.const_data_ptr(), now.nbytes()) ==
               0;
  }

  torch::nn::Module& module_;
  ConnectOptions options_;
  std::unique_ptr<Membership> membership_;  // null: one world is all there is
  std::vector<SavedBytes> kept_;
  bool has_begun_ = false;
  int64_t steps_ = 0;
  // As they were when the last step was committed.
  bool has_state_ = false;
  Tensor sample_;
  std::vector<Tensor> buffers_;
};

ElasticRun::ElasticRun(torch::nn::Module& module, torch::optim::Optimizer& optimizer,
                       const ConnectOptions& options)
    : impl_(std::make_unique<Impl>(module, optimizer, options)) {}

ElasticRun::~ElasticRun() = default;

void ElasticRun::keep(std::function<std::string()> save,
                      std::function<void(const std::string&)> load) {
  impl_->keep({std::move(save), std::move(load)});
}

bool ElasticRun::train(const std::function<void(Communicator&)>& body) {
  return impl_->train(body);
}

int64_t ElasticRun::steps() const { return impl_->steps(); }

void ElasticRun::commit() { impl_->commit(); }

void ElasticRun::resumed(int64_t steps) { impl_->resumed(steps); }

}  // namespace cohort
