// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/save.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "cohort/checkpoint/save_plan.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/hash.h"
#include "cohort/core/parse.h"
#include "cohort/core/record.h"
#include "cohort/version.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

// A file of an earlier checkpoint is shared while at least this share of it is still
// wanted; so what is kept for nothing is never more than what is kept.
constexpr int64_t kWorthSharing = 2;

// What a rank says before anything is written.
struct Offer {
  int64_t free = 0;
  int64_t total = 0;
  std::map<std::string, int64_t> shared;  // by file of the base
  // Left to write if these files are shared.
  int64_t fresh(const std::set<std::string>& files) const {
    int64_t bytes = total;
    for (const auto& [file, size] : shared)
      if (files.count(file)) bytes -= size;
    return bytes;
  }
};
auto record_fields(Alike<Offer> auto& offer) {
  return std::tie(offer.free, offer.total, offer.shared);
}

// One save by one rank. Its tasks share it: one that is left behind on a slow disk,
// when a peer is lost, may outlive the call; what it still writes nobody will ever see.
class Save : public std::enable_shared_from_this<Save> {
 public:
  Save(std::string root, SaveOptions options, Disk& disk, RunState run,
       TextExchange exchange, std::span<const StatePiece> pieces)
      : root_(std::move(root)),
        options_(std::move(options)),
        disk_(disk),
        run_(std::move(run)),
        exchange_(std::move(exchange)),
        pieces_(pieces.begin(), pieces.end()) {}

  SaveReport operator()() {
    try {
      begin();
      offer();
      write();
      commit();
    } catch (...) {
      abandon();
      throw;
    }
    return report_;
  }

 private:
  bool leads() const { return exchange_.rank == 0; }

  // All ranks do their part and learn each other's result, or the first failure.
  template <typename Work>
  std::vector<std::string> together(Work work) {
    at_work_ = true;
    auto all = exchange_.work([self = shared_from_this(), work = std::move(work)] {
      std::string mine;
      try {
        mine = "+" + std::string(work());
      } catch (const std::exception& error) {
        mine = text("-", error.what());
      }
      self->at_work_ = false;
      return mine;
    });
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank].starts_with('-'))
        throw CheckpointError(exchange_.size == 1
                                  ? all[rank].substr(1)
                                  : text(all[rank].substr(1), " (rank ", rank, ")"));
      all[rank].erase(0, 1);
    }
    return all;
  }

  // Rank 0 clears the way; all learn where to write and what can be shared.
  void begin() {
    const auto all = together([this]() -> std::string {
      if (!leads()) return "";
      make_root();
      clean_leftovers(root_, disk_);
      const auto now = std::chrono::system_clock::now().time_since_epoch().count();
      const auto token = hex16(fingerprint(int64_t{::getpid()}, int64_t{now}));
      aside_ = fs::path(root_) / text(".", step_folder(run_.step), ".", token);
      disk_.make_folder(aside_);
      return text(aside_.filename().string(), "\n", choose_base());
    });
    const auto lines = split(all[0], '\n');
    aside_ = fs::path(root_) / lines[0];
    together([this, lines] {
      if (lines.size() < 2 || lines[1].empty()) return "";
      base_path_ = fs::path(root_) / lines[1];
      earlier_.emplace(base_path_.string());
      base_ = earlier_->manifest();
      return "";
    });
  }

  // Its name, and those of folders above it, last before anything is shown in it.
  void make_root() {
    for (const auto& folder : missing_folders(root_)) {
      disk_.make_folder(folder);
      disk_.sync_folder(folder.has_parent_path() ? folder.parent_path()
                                                 : fs::path("."));
    }
    disk_.make_folder(root_);
  }

  // The newest, where the file system can share files between two folders.
  std::string choose_base() {
    const auto newest = latest_checkpoint(root_);
    if (!newest) return "";
    try {
      disk_.link(fs::path(*newest) / "manifest.json", aside_ / ".probe");
      disk_.remove(aside_ / ".probe");
    } catch (const DiskFull&) {
      throw;
    } catch (const CheckpointError&) {
      return "";
    }
    return fs::path(*newest).filename().string();
  }

  void offer() {
    const auto all = together([this] {
      if (options_.chunk_bytes < 1)
        throw CheckpointError(text("[checkpoint.save] chunks of ", options_.chunk_bytes,
                                   " bytes; legal: from 1 on"));
      plan_ = make_plan(pieces_, options_.chunk_bytes, earlier_ ? &*earlier_ : nullptr);
      return to_record(Offer{.free = disk_.free_bytes(root_),
                             .total = total_bytes(plan_),
                             .shared = shared_bytes(plan_, base_)});
    });
    for (const auto& one : all)
      offers_.push_back(read_record<Offer>(one, ErrorKind::kCheckpoint,
                                           "[checkpoint.save] a peer's offer"));
    decide();
    if (report_.written_bytes > free_) throw DiskFull(full_text());
    share_only(plan_, base_, shared_);
  }

  // From what all know, so that all decide alike.
  void decide() {
    std::map<std::string, int64_t> wanted;
    free_ = std::numeric_limits<int64_t>::max();
    for (const auto& one : offers_) {
      free_ = std::min(free_, one.free);
      for (const auto& [file, bytes] : one.shared) wanted[file] += bytes;
    }
    for (const auto& file : base_.files)
      if (wanted[file.name] > 0 && wanted[file.name] >= file.bytes / kWorthSharing)
        shared_.insert(file.name);
    for (const auto& one : offers_) {
      report_.written_bytes += one.fresh(shared_);
      report_.linked_bytes += one.total - one.fresh(shared_);
    }
  }

  std::string full_text() const {
    return text("[checkpoint.save] ", root_,
                ": the disk is full: ", report_.written_bytes,
                " bytes wanted for step ", run_.step, ", ", free_,
                " free; what was saved before is whole");
  }

  // Each writes one file, if it has anything new; files are counted without gaps.
  void write() {
    int64_t index = 0, count = 0;
    for (size_t rank = 0; rank < offers_.size(); ++rank) {
      if (static_cast<int>(rank) == exchange_.rank) index = count;
      count += offers_[rank].fresh(shared_) > 0;
    }
    parts_ = together([this, index, count] {
      try {
        const auto part =
            write_shard(plan_, base_, aside_ / shard_name(index, count), disk_);
        const auto damage = options_.damage ? options_.damage() : std::string();
        if (!damage.empty()) throw CheckpointError(damage);
        for (const auto& file : base_.files)
          if (shared_.count(file.name))
            disk_.link(base_path_ / file.name, aside_ / linked_name(file));
        return format_part(part, aside_.string());
      } catch (const DiskFull&) {
        free_ = disk_.free_bytes(root_);
        throw DiskFull(full_text());
      }
    });
  }

  void commit() {
    const fs::path place = fs::path(root_) / step_folder(run_.step);
    report_.path = place.string();
    together([this, place] {
      if (!leads()) return "";
      std::vector<Manifest> parts;
      for (const auto& part : parts_) parts.push_back(parse_part(part, report_.path));
      Manifest manifest = merge_parts(parts, report_.path);
      manifest.run = run_;
      manifest.program = version();
      manifest.build = build_id();
      manifest.chunk_bytes = options_.chunk_bytes;
      try {
        const auto file = disk_.create(aside_ / "manifest.json");
        file->write(format_manifest(manifest, report_.path));
        file->finish();
        publish(place);
      } catch (const DiskFull&) {
        free_ = disk_.free_bytes(root_);
        throw DiskFull(full_text());
      }
      retain();
      return "";
    });
  }

  void publish(const fs::path& place) {
    disk_.sync_folder(aside_);
    if (!fs::exists(place)) {
      disk_.rename(aside_, place);
      disk_.sync_folder(root_);
      return;
    }
    if (!disk_.exchange(aside_, place)) {
      const fs::path old =
          place.parent_path() / text(".", place.filename().string(), ".replaced");
      disk_.rename(place, old);
      disk_.rename(aside_, place);
      aside_ = old;
    }
    disk_.sync_folder(root_);
    disk_.remove(aside_);
  }

  // The new one is safe by now: an old one that cannot go is a remark.
  void retain() {
    try {
      if (options_.retention.last <= 0) return;
      for (const auto& path :
           superfluous(list_checkpoints(root_), options_.retention)) {
        remove_checkpoint(path, disk_);
        report_.removed.push_back(path);
      }
    } catch (const CheckpointError& error) {
      report_.remark = error.what();
    }
  }

  // What a task is still at the next save cleans up.
  void abandon() noexcept {
    try {
      if (!at_work_ && leads() && !aside_.empty()) disk_.remove(aside_);
    } catch (...) {  // the next save cleans up
    }
  }

  const std::string root_;
  const SaveOptions options_;
  Disk& disk_;
  const RunState run_;
  const TextExchange exchange_;
  const std::vector<StatePiece> pieces_;
  std::atomic<bool> at_work_{false};

  fs::path aside_;      // where this one grows
  fs::path base_path_;  // the newest before it
  std::optional<Checkpoint> earlier_;
  Manifest base_;  // its manifest, or an empty one
  SavePlan plan_;
  std::vector<Offer> offers_;
  std::set<std::string> shared_;  // files of the base
  int64_t free_ = 0;
  std::vector<std::string> parts_;
  SaveReport report_;
};

}  // namespace

StatePiece whole_piece(std::string name, const Tensor& tensor, TensorKind kind) {
  const auto data = tensor.detach().contiguous();
  return {{.spec = spec_of(std::move(name), data), .kind = kind, .order = {}}, data};
}

CheckpointWriter::CheckpointWriter(std::string root, SaveOptions options, Disk& disk)
    : root_(std::move(root)), options_(std::move(options)), disk_(disk) {}

SaveReport CheckpointWriter::save(const RunState& run,
                                  std::span<const StatePiece> pieces,
                                  const TextExchange& exchange) {
  return (*std::make_shared<Save>(root_, options_, disk_, run, exchange, pieces))();
}

}  // namespace cohort
