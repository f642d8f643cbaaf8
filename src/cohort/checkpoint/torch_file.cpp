// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/torch_file.h"

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <map>
#include <tuple>

#include "cohort/checkpoint/disk.h"
#include "cohort/checkpoint/pickle.h"
#include "cohort/checkpoint/zip_file.h"
#include "cohort/core/error.h"
#include "cohort/core/memory.h"

namespace cohort {
namespace {

[[noreturn]] void fail_torch(const std::string& path, const std::string& what) {
  throw CheckpointError(text("[checkpoint.torch] ", path, ": ", what));
}

// The first sentence of what LibTorch says; the rest is a trace of its own.
std::string reason_of(const std::exception& error) {
  const auto* theirs = dynamic_cast<const c10::Error*>(&error);
  std::string reason = theirs ? theirs->what_without_backtrace() : error.what();
  return reason.substr(0, std::min(reason.find('\n'), size_t{200}));
}

struct StorageType {
  const char* name;
  at::ScalarType dtype;
};
constexpr StorageType kStorages[] = {
    {"torch.DoubleStorage", at::kDouble}, {"torch.FloatStorage", at::kFloat},
    {"torch.HalfStorage", at::kHalf},     {"torch.BFloat16Storage", at::kBFloat16},
    {"torch.LongStorage", at::kLong},     {"torch.IntStorage", at::kInt},
    {"torch.ShortStorage", at::kShort},   {"torch.CharStorage", at::kChar},
    {"torch.ByteStorage", at::kByte},     {"torch.BoolStorage", at::kBool},
};

// The records of one file; storages that tensors share are read once.
class Archive {
 public:
  explicit Archive(const std::string& path) : zip_(path) {
    if (zip_.has("constants.pkl"))
      throw CheckpointError(
          "is a TorchScript module; legal: torch.save(model.state_dict(), ...)");
    if (zip_.has("byteorder") && zip_.read("byteorder", kMostText) != "little")
      throw CheckpointError("has the byte order of another machine");
  }

  PickleValue read() {
    return read_pickle(zip_.read("data.pkl", kMostPickle),
                       [this](const PickleStorage& want) { return storage(want); });
  }

 private:
  static constexpr int64_t kMostText = 100;
  // A tensor takes a hundred bytes of it; reading it, fifty times its bytes.
  static constexpr int64_t kMostPickle = 32'000'000;

  Tensor storage(const PickleStorage& want) {
    const auto found = storages_.find(want.key);
    if (found != storages_.end()) return found->second;
    for (const auto& [name, dtype] : kStorages) {
      if (want.type != name) continue;
      const std::string record = "data/" + want.key;
      const int64_t bytes = want.numel == 0 ? 0 : zip_.size(record);
      const auto size = static_cast<int64_t>(c10::elementSize(dtype));
      if (bytes / size != want.numel || bytes % size != 0)
        throw CheckpointError(text("storage ", want.key, " has ", bytes,
                                   " bytes; expected ", want.numel, " elements"));
      require_memory(bytes, ErrorKind::kCheckpoint, text("storage ", want.key));
      const auto out = at::empty({want.numel}, dtype);
      if (bytes > 0) zip_.read(record, static_cast<char*>(out.mutable_data_ptr()));
      if (dtype == at::kBool) check_bools(out, want.key);
      return storages_[want.key] = out;
    }
    throw CheckpointError(text("a tensor of ", want.type,
                               "; legal: F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL"));
  }

  static void check_bools(const Tensor& tensor, const std::string& key) {
    const auto* bytes = static_cast<const char*>(tensor.const_data_ptr());
    if (std::any_of(bytes, bytes + tensor.numel(),
                    [](char c) { return c != 0 && c != 1; }))
      throw CheckpointError(text("storage ", key, ": a bool that is neither 0 nor 1"));
  }

  ZipFile zip_;
  std::map<std::string, Tensor> storages_;
};

PickleValue unpickled(const std::string& path) {
  try {
    return Archive(path).read();
  } catch (const std::exception& error) {
    fail_torch(path, text("is no state dictionary: ", reason_of(error)));
  }
}

std::string keys_text(const PickleValue& dict) {
  std::string keys;
  for (size_t i = 0; i < dict.items->values.size(); i += 2) {
    if (keys.size() > 100) return keys + " ...";
    keys += text(keys.empty() ? "'" : ", '", dict.items->values[i].text(), "'");
  }
  return keys;
}

PickleValue checked_dict(const PickleValue& value, const std::string& path) {
  if (value.kind != PickleValue::Kind::kDict)
    fail_torch(path, "holds no dictionary of tensors");
  return value;
}

// `torch.save` is used on many things: find the dictionary that was asked for.
PickleValue chosen(const std::string& path, const std::string& key) {
  const auto whole = checked_dict(unpickled(path), path);
  if (key.empty()) return whole;
  for (size_t i = 0; i < whole.items->values.size(); i += 2)
    if (whole.items->values[i].text() == key)
      return checked_dict(whole.items->values[i + 1], text(path, " at '", key, "'"));
  fail_torch(path, text("has no key '", key, "'; it has ", keys_text(whole)));
}

std::vector<char> pickle_of(std::span<const NamedTensor> tensors,
                            std::vector<Tensor>& stored) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::TensorType::get());
  for (const auto& [name, tensor] : tensors) {
    auto value = tensor.detach().cpu().contiguous();
    // A view would bring all that it is a view of.
    if (value.storage().nbytes() != value.nbytes()) value = value.clone();
    dict.insert(name, value);
  }
  std::vector<char> bytes;
  // Without tags: they name a function that weights_only=True does not call.
  torch::jit::Pickler pickler(
      [&](const char* data, size_t size) {
        bytes.insert(bytes.end(), data, data + size);
      },
      nullptr, nullptr, nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(dict);
  pickler.stop();
  stored = pickler.tensorData();
  return bytes;
}

// LibTorch's writer ends the file in its destructor, so a failure waits until after it.
void write_zip(Disk::File& file, std::span<const NamedTensor> tensors) {
  std::exception_ptr failure;
  {
    caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, size_t size) {
      try {
        if (!failure) file.write({static_cast<const char*>(data), size});
      } catch (...) {
        failure = std::current_exception();
      }
      return size;
    });
    std::vector<Tensor> stored;
    const auto pickle = pickle_of(tensors, stored);
    writer.writeRecord("data.pkl", pickle.data(), pickle.size());
    for (size_t i = 0; i < stored.size(); ++i)
      writer.writeRecord(text("data/", i), stored[i].storage().data(),
                         stored[i].storage().nbytes());
    writer.writeEndOfFile();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

std::vector<NamedTensor> read_torch_file(const std::string& path,
                                         const std::string& key) {
  const auto dict = chosen(path, key);
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < dict.items->values.size(); i += 2) {
    const auto& [name, value] =
        std::tie(dict.items->values[i], dict.items->values[i + 1]);
    if (name.kind == PickleValue::Kind::kText && value.tensor.defined())
      tensors.push_back({name.text(), value.tensor});
  }
  if (tensors.empty() && !dict.items->values.empty())
    fail_torch(path, text("has no tensor", key.empty() ? "" : " at '" + key + "'",
                          "; name the entry that has: ", keys_text(dict)));
  return tensors;
}

void write_torch_file(const std::string& path, std::span<const NamedTensor> tensors) {
  const auto disk = real_disk();
  const std::string aside = text(path, ".tmp.", ::getpid());
  disk->remove(aside);
  try {
    const auto file = disk->create(aside);
    write_zip(*file, tensors);
    file->finish();
    disk->rename(aside, path);
  } catch (const CheckpointError&) {
    disk->remove(aside);
    throw;
  } catch (const std::exception& error) {
    disk->remove(aside);
    fail_torch(path, text("cannot be written: ", reason_of(error)));
  }
  const auto folder = std::filesystem::path(path).parent_path();
  disk->sync_folder(folder.empty() ? "." : folder);
}

}  // namespace cohort
