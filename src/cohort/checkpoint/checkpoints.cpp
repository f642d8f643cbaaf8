// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <cstring>
#include <utility>
#include <vector>

#include "cohort/checkpoint.h"
#include "cohort/checkpoint/checkpoint.h"
#include "cohort/checkpoint/load.h"
#include "cohort/checkpoint/save.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/folder_lock.h"
#include "cohort/engine/optimizer_bytes.h"

namespace cohort {
namespace {

StatePiece piece_of(const std::string& name, const std::string& bytes) {
  // One byte more: a tensor has elements.
  Tensor tensor = at::zeros({static_cast<int64_t>(bytes.size()) + 1}, at::kByte);
  std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return whole_piece(name, tensor, TensorKind::kMoment);
}

std::string bytes_in(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()),
          static_cast<size_t>(tensor.numel()) - 1};
}

bool is_word(const std::string& name) {
  return !name.empty() && name.find_first_not_of(
                              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                              "0123456789_") == std::string::npos;
}

}  // namespace

class Checkpoints::Impl {
 public:
  Impl(std::string folder, Communicator& comm, const CheckpointsOptions& options)
      : folder_(std::move(folder)),
        comm_(comm),
        disk_(real_disk()),
        meeting_(meeting_over(comm)),
        writer_(folder_, {.retention = {.last = options.keep}}, *disk_) {
    agree([this] {
      if (comm_.rank() != 0) return;
      make_folder(folder_, ErrorKind::kConfig);
      lock_.emplace(folder_);
    });
  }

  void keep(torch::nn::Module& module) {
    for (const auto& item : module.named_parameters())
      add_tensor(item.key(), item.value(), TensorKind::kParameter);
    for (const auto& item : module.named_buffers())
      add_tensor(item.key(), item.value(), TensorKind::kBuffer);
  }

  void keep(Sharded& sharded) {
    sharded_.push_back(&sharded);
    for (const auto& [name, tensor] : sharded.frozen())
      add_tensor(name, tensor, TensorKind::kParameter);
    for (const auto& [name, tensor] : sharded.buffers())
      add_tensor(name, tensor, TensorKind::kBuffer);
  }

  void keep_bytes(std::string name, SavedBytes bytes) {
    for (const auto& kept : bytes_)
      if (kept.name == name)
        throw ConfigError(text("[checkpoint] '", name, "' is kept already"));
    bytes_.push_back({std::move(name), std::move(bytes)});
  }

  std::string name_of_optimizer() {
    return optimizers_++ == 0 ? "optimizer.bytes"
                              : text("optimizer.bytes.", optimizers_ - 1);
  }

  std::string save(int64_t step) {
    std::vector<StatePiece> pieces;
    if (comm_.rank() == 0) {
      for (const auto& kept : tensors_)
        pieces.push_back(whole_piece(kept.name, kept.tensor.detach(), kept.kind));
      for (const auto& kept : bytes_)
        pieces.push_back(piece_of(kept.name, kept.bytes.save()));
    }
    RunState run{.step = step, .world = comm_.size()};
    for (const auto* sharded : sharded_) {
      const auto own = sharded->pieces(/*owned=*/true);
      pieces.insert(pieces.end(), own.begin(), own.end());
      run.state["updates"] = std::to_string(sharded->updates());
    }
    run.layout = text("dp=", comm_.size());
    return writer_.save(run, pieces, meeting_).path;
  }

  std::optional<int64_t> resume() {
    std::string newest;
    agree([&] {
      if (comm_.rank() == 0) newest = latest_checkpoint(folder_).value_or("");
    });
    newest = meeting_.gather(newest)[0];
    if (newest.empty()) return std::nullopt;
    int64_t step = 0;
    agree([&] { step = load(newest); });
    for (auto* sharded : sharded_) sharded->publish();
    return step;
  }

 private:
  struct KeptTensor {
    std::string name;
    Tensor tensor;
    TensorKind kind;
  };
  struct KeptBytes {
    std::string name;  // of the tensor that has them
    SavedBytes bytes;
  };

  void add_tensor(const std::string& name, const Tensor& tensor, TensorKind kind) {
    tensors_.push_back({name, tensor, kind});
  }

  // Runs it on every rank; what goes wrong on one is thrown by all.
  void agree(const std::function<void()>& task) {
    const auto said = meeting_.work([&task]() -> std::string {
      try {
        task();
        return "";
      } catch (const ConfigError& error) {
        return text("c", error.what());
      } catch (const std::exception& error) {
        return text("s", error.what());
      }
    });
    for (const auto& one : said) {
      if (one.empty()) continue;
      if (one[0] == 'c') throw ConfigError(one.substr(1));
      throw CheckpointError(one.substr(1));
    }
  }

  int64_t load(const std::string& path) {
    const c10::NoGradGuard no_grad;
    Checkpoint saved(path);
    for (const auto& kept : tensors_)
      require_fit(saved, spec_of(kept.name, kept.tensor));
    for (const auto& kept : tensors_) kept.tensor.copy_(saved.read(kept.name));
    for (const auto& kept : bytes_) kept.bytes.load(bytes_in(saved.read(kept.name)));
    const RunState& run = saved.manifest().run;
    for (auto* sharded : sharded_) {
      auto pieces = sharded->pieces(/*owned=*/false);
      load_pieces(saved, pieces);
      const auto updates = run.state.find("updates");
      sharded->set_updates(
          updates == run.state.end() ? run.step : std::atoll(updates->second.c_str()));
    }
    return run.step;
  }

  std::string folder_;
  Communicator& comm_;
  std::unique_ptr<Disk> disk_;
  Meeting meeting_;
  CheckpointWriter writer_;
  std::optional<FolderLock> lock_;  // rank 0's
  std::vector<KeptTensor> tensors_;
  std::vector<KeptBytes> bytes_;
  std::vector<Sharded*> sharded_;
  int optimizers_ = 0;
};

Checkpoints::Checkpoints(const std::string& folder, Communicator& comm,
                         const CheckpointsOptions& options)
    : impl_(std::make_unique<Impl>(folder, comm, options)) {}

Checkpoints::~Checkpoints() = default;

Checkpoints& Checkpoints::keep(torch::nn::Module& module) {
  impl_->keep(module);
  return *this;
}

Checkpoints& Checkpoints::keep(torch::optim::Optimizer& optimizer) {
  impl_->keep_bytes(impl_->name_of_optimizer(), bytes_of(optimizer));
  return *this;
}

Checkpoints& Checkpoints::keep(Sharded& sharded) {
  impl_->keep(sharded);
  return *this;
}

Checkpoints& Checkpoints::keep(const std::string& name,
                               std::function<std::string()> save,
                               std::function<void(const std::string&)> load) {
  if (!is_word(name))
    throw ConfigError(text("[checkpoint] keep '", name,
                           "'; legal: a name of letters, digits and '_'"));
  impl_->keep_bytes("kept." + name, {std::move(save), std::move(load)});
  return *this;
}

std::string Checkpoints::save(int64_t step) { return impl_->save(step); }

std::optional<int64_t> Checkpoints::resume() { return impl_->resume(); }

}  // namespace cohort
