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
#include "cohort/comm/gather_records.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/first_line.h"
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
        exchange_(text_exchange(comm)),
        writer_(folder_, {.retention = {.last = options.keep}}, *disk_) {
    if (folder_.empty() || options.keep < 0)
      throw ConfigError(text("[checkpoint] folder '", folder_, "', keep ", options.keep,
                             "; legal: a folder, and 0 or more"));
    agree([this] {
      if (comm_.rank() != 0) return;
      make_folder(folder_, ErrorKind::kConfig);
      lock_.emplace(folder_);
    });
  }

  void keep(torch::nn::Module& module) { keep_tensors(module, /*trained=*/true); }

  void keep(Sharded& sharded) {
    sharded_.push_back(&sharded);
    keep_tensors(sharded.module(), /*trained=*/false);
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
    if (!std::exchange(has_begun_, true)) agree([this] { require_fresh(); });
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
    return writer_.save(run, pieces, exchange_).path;
  }

  std::optional<int64_t> resume() {
    has_begun_ = true;
    passed_over_.clear();
    for (const auto& path : usable()) {
      try {
        int64_t step = 0;
        agree([&] { step = load(path); });
        for (auto* sharded : sharded_) sharded->publish();
        return step;
      } catch (const CheckpointError& error) {
        passed_over_.emplace_back(error.what());
      }
    }
    if (!passed_over_.empty()) throw CheckpointError(passed_over_.front());
    return std::nullopt;
  }

  const std::vector<std::string>& passed_over() const { return passed_over_; }

 private:
  // Rank 0's, so that all try the same: the newest first. The others are passed over.
  std::vector<std::string> usable() {
    std::pair<std::vector<std::string>, std::vector<std::string>> mine;
    agree([&] {
      if (comm_.rank() != 0) return;
      const auto all = list_checkpoints(folder_);
      for (auto info = all.rbegin(); info != all.rend(); ++info)
        if (info->trouble.empty())
          mine.first.push_back(info->path);
        else
          mine.second.push_back(info->trouble);
    });
    mine = gather_records(exchange_, mine, "[checkpoint] rank 0's list of them")[0];
    passed_over_ = mine.second;
    return mine.first;
  }

  void require_fresh() const {
    if (comm_.rank() == 0 && !list_checkpoints(folder_).empty())
      throw ConfigError(text("[checkpoint] ", folder_,
                             ": has checkpoints of another run; legal: resume() before "
                             "the first save(), or another folder"));
  }

  struct TensorEntry {
    std::string name;
    Tensor tensor;
    TensorKind kind;
  };
  struct BytesEntry {
    std::string name;  // the tensor that has them
    SavedBytes bytes;
  };

  // `trained`: also those parameters that an optimizer changes.
  void keep_tensors(torch::nn::Module& module, bool trained) {
    for (const auto& item : module.named_parameters())
      if (trained || !item.value().requires_grad())
        add_tensor(item.key(), item.value(), TensorKind::kParameter);
    for (const auto& item : module.named_buffers())
      add_tensor(item.key(), item.value(), TensorKind::kBuffer);
  }

  void add_tensor(const std::string& name, const Tensor& tensor, TensorKind kind) {
    for (const auto& kept : tensors_)
      if (kept.name == name)
        throw ConfigError(text("[checkpoint] '", name, "' is kept already"));
    tensors_.push_back({name, tensor, kind});
  }

  // Runs it on every rank; what goes wrong on one is thrown by all.
  void agree(const std::function<void()>& task) {
    const auto said = exchange_.work([&task]() -> std::string {
      try {
        task();
        return "";
      } catch (const ConfigError& error) {
        return text("c", error.what());
      } catch (const std::exception& error) {
        return text("s", first_line(error.what()));
      }
    });
    for (const auto& one : said) {
      if (one.empty()) continue;
      if (one[0] == 'c') throw ConfigError(one.substr(1));
      throw CheckpointError(one.substr(1));
    }
  }

  static void load_bytes(const BytesEntry& kept, Checkpoint& saved) {
    const std::string bytes = bytes_in(saved.read(kept.name));
    try {
      kept.bytes.load(bytes);
    } catch (const std::exception& error) {
      throw CheckpointError(
          text("[checkpoint] ", saved.path(), ": ", kept.name,
               " does not fit what is kept here: ", first_line(error.what())));
    }
  }

  int64_t load(const std::string& path) {
    const c10::NoGradGuard no_grad;
    Checkpoint saved(path);
    for (const auto& kept : tensors_)
      require_fit(saved, spec_of(kept.name, kept.tensor));
    for (const auto& kept : tensors_) kept.tensor.copy_(saved.read(kept.name));
    for (const auto& kept : bytes_) load_bytes(kept, saved);
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
  TextExchange exchange_;
  CheckpointWriter writer_;
  std::optional<FolderLock> lock_;  // rank 0's
  std::vector<TensorEntry> tensors_;
  std::vector<BytesEntry> bytes_;
  std::vector<Sharded*> sharded_;
  std::vector<std::string> passed_over_;
  int optimizers_ = 0;
  bool has_begun_ = false;
};

Checkpoints::Checkpoints(const std::string& folder, Communicator& comm,
                         const CheckpointsOptions& options)
    : impl_(std::make_unique<Impl>(folder, comm, options)) {}

const std::vector<std::string>& Checkpoints::passed_over() const {
  return impl_->passed_over();
}

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
