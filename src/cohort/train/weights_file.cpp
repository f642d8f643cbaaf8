// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/weights_file.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <optional>

#include "cohort/checkpoint/manifest.h"
#include "cohort/checkpoint/safetensors_writer.h"
#include "cohort/comm/text_exchange.h"
#include "cohort/core/error.h"
#include "cohort/elastic/state_exchange.h"
#include "cohort/step/piece_overlap.h"

namespace cohort {
namespace {

// What travels at once: ranges of some tensors, one behind another in the file.
using Stretch = std::vector<StateTensor>;

// Elements that are as good as one for what cuts: in another memory order than
// row-major, rows along dimension 0 lie one behind another in both orders if it is the
// slowest in both, and can be turned alone. Else only all of the tensor can.
int64_t unit_of(const StateTensor& tensor) {
  if (tensor.order.empty()) return 1;
  const TensorSpec& spec = tensor.spec;
  return tensor.order[0] == 0 ? spec.numel() / std::max<int64_t>(1, spec.shape[0])
                              : spec.numel();
}

std::vector<Stretch> cut_into_stretches(const std::vector<StateTensor>& tensors,
                                        int64_t bytes) {
  std::vector<Stretch> stretches(1);
  int64_t room = bytes;
  for (const auto& tensor : tensors) {
    const int64_t size = size_of(tensor.spec.dtype), unit = unit_of(tensor);
    for (int64_t begin = 0; begin < tensor.spec.numel();) {
      if (room < unit * size && !stretches.back().empty()) {
        stretches.emplace_back();
        room = bytes;
      }
      StateTensor part = tensor;
      part.spec.begin = begin;
      part.spec.end = std::min(tensor.spec.numel(),
                               begin + std::max<int64_t>(1, room / size / unit) * unit);
      room -= (part.spec.end - begin) * size;
      begin = part.spec.end;
      stretches.back().push_back(std::move(part));
    }
  }
  return stretches;
}

// What of a piece lies within a stretch, on the host.
StatePiece within(const StatePiece& piece, const TensorSpec& stretch) {
  StatePiece part{piece.tensor, piece.data.detach().view({-1})};
  TensorSpec& spec = part.tensor.spec;
  if (spec.box.is_whole()) {
    const int64_t begin = std::max(spec.begin, stretch.begin);
    const int64_t end = std::min(spec.end, stretch.end);
    part.data = part.data.narrow(0, begin - spec.begin, end - begin);
    spec.begin = begin;
    spec.end = end;
  }
  part.data = part.data.cpu();
  return part;
}

// Elements in memory order, as many rows as they are, as row-major bytes.
Tensor row_major(const StatePiece& rows) {
  const auto& [spec, kind, order] = rows.tensor;
  if (order.empty()) return rows.data;
  std::vector<int64_t> shape = spec.shape;
  if (order[0] == 0) shape[0] = rows.data.numel() / unit_of(rows.tensor);
  return in_shape(rows.data, shape, order).contiguous().view({-1});
}

// The writing of one file by all ranks.
class WeightsFile {
 public:
  WeightsFile(const std::string& path, std::span<const StatePiece> owned,
              Communicator& comm)
      : path_(path), comm_(comm) {
    for (const auto& piece : owned)
      if (piece.tensor.kind != TensorKind::kMoment)
        owned_[piece.tensor.spec.name].push_back(piece);
  }

  void open(const std::vector<StateTensor>& tensors) {
    at_first([&] { file_.emplace(path_, tensors); });
  }

  void add(const Stretch& stretch) {
    std::vector<StatePiece> have, want;
    for (const auto& part : stretch) {
      if (const auto found = owned_.find(part.spec.name); found != owned_.end())
        for (const auto& piece : found->second)
          if (overlap(piece.tensor.spec, part.spec))
            have.push_back(within(piece, part.spec));
      if (comm_.rank() == 0)
        want.push_back(
            {part, at::empty({part.spec.end - part.spec.begin}, part.spec.dtype)});
    }
    const std::string missing = exchange_state(comm_, have, want);
    COHORT_CHECK(missing.empty(), path_, ": ", missing);
    at_first([&] {
      for (const auto& part : want) {
        const Tensor data = row_major(part);
        file_->write({static_cast<const char*>(data.const_data_ptr()),
                      static_cast<size_t>(data.nbytes())});
      }
    });
  }

  void finish() {
    at_first([&] { file_->finish(); });
  }

 private:
  // Rank 0 does it, while the others wait for as long as its disk takes. A task that a
  // lost rank cuts off ends before this does.
  template <typename Task>
  void at_first(Task task) {
    const auto told = text_exchange(comm_).work([task, leads = comm_.rank() == 0] {
      try {
        if (leads) task();
        return std::string();
      } catch (const std::exception& error) {
        return std::string(error.what());
      }
    });
    if (!told[0].empty()) throw CheckpointError(told[0]);
  }

  const std::string path_;
  Communicator& comm_;
  std::map<std::string, std::vector<StatePiece>> owned_;
  std::optional<SafetensorsWriter> file_;  // at rank 0
};

}  // namespace

std::vector<StateTensor> gather_tensors(Communicator& comm,
                                        std::span<const StatePiece> pieces) {
  Manifest mine;
  for (const auto& piece : pieces) mine.tensors.push_back({piece.tensor, {}});
  std::map<std::string, StateTensor> all;
  for (const auto& part : text_exchange(comm).gather(format_part(mine, "weights")))
    for (auto& [tensor, boxes] : parse_part(part, "weights").tensors) {
      tensor.spec.end = tensor.spec.numel();
      const auto [found, added] = all.try_emplace(tensor.spec.name, tensor);
      if (!added && !same_form(found->second, tensor))
        throw CheckpointError(text("[train.weights] tensor '", tensor.spec.name,
                                   "': two ranks say two things of its form"));
    }
  std::vector<StateTensor> tensors;
  for (auto& [name, tensor] : all) tensors.push_back(std::move(tensor));
  return tensors;
}

void write_weights(const std::string& path, std::span<const StatePiece> owned,
                   Communicator& comm, int64_t stretch_bytes) {
  const c10::NoGradGuard no_grad;
  auto tensors = gather_tensors(comm, owned);
  std::erase_if(tensors,
                [](const StateTensor& t) { return t.kind == TensorKind::kMoment; });
  sort_as_saved(tensors);
  WeightsFile file(path, owned, comm);
  file.open(tensors);
  for (const auto& stretch : cut_into_stretches(tensors, stretch_bytes))
    file.add(stretch);
  file.finish();
}

}  // namespace cohort
