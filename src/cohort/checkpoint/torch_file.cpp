// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/torch_file.h"

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/import_read.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <unistd.h>

#include <algorithm>
#include <exception>

#include "cohort/checkpoint/disk.h"
#include "cohort/core/error.h"

namespace cohort {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw CheckpointError(text("[checkpoint.torch] ", path, ": ", what));
}

// The first sentence of what LibTorch says; the rest is a trace of its own.
std::string reason_of(const std::exception& error) {
  const auto* theirs = dynamic_cast<const c10::Error*>(&error);
  std::string reason = theirs ? theirs->what_without_backtrace() : error.what();
  return reason.substr(0, std::min(reason.find('\n'), size_t{200}));
}

c10::IValue unpickled(const std::string& path) {
  try {
    caffe2::serialize::PyTorchStreamReader reader(path);
    if (reader.hasRecord("constants.pkl"))
      fail(path, "is a TorchScript module; legal: torch.save(model.state_dict(), ...)");
    return torch::jit::readArchiveAndTensors(
        "data", /*pickle_prefix=*/"", /*tensor_prefix=*/"",
        /*type_resolver=*/std::nullopt, /*obj_loader=*/std::nullopt, at::kCPU, reader);
  } catch (const CheckpointError&) {
    throw;
  } catch (const std::exception& error) {
    fail(path, text("is no state dictionary that can be read: ", reason_of(error)));
  }
}

std::string keys_text(const c10::impl::GenericDict& dict) {
  std::string keys;
  for (const auto& entry : dict) {
    if (keys.size() > 100) return keys + " ...";
    if (entry.key().isString())
      keys += text(keys.empty() ? "'" : ", '", entry.key().toStringRef(), "'");
  }
  return keys;
}

c10::impl::GenericDict dict_of(const c10::IValue& value, const std::string& path) {
  if (!value.isGenericDict()) fail(path, "holds no dictionary of tensors");
  return value.toGenericDict();
}

// `torch.save` is used on many things: find the dictionary that was asked for.
c10::impl::GenericDict chosen(const std::string& path, const std::string& key) {
  const auto whole = dict_of(unpickled(path), path);
  if (key.empty()) return whole;
  for (const auto& entry : whole)
    if (entry.key().isString() && entry.key().toStringRef() == key)
      return dict_of(entry.value(), text(path, " at '", key, "'"));
  fail(path, text("has no key '", key, "'; it has ", keys_text(whole)));
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
  for (const auto& entry : dict)
    if (entry.key().isString() && entry.value().isTensor())
      tensors.push_back({entry.key().toStringRef(), entry.value().toTensor()});
  if (tensors.empty() && dict.size() > 0)
    fail(path, text("has no tensor", key.empty() ? "" : " at '" + key + "'",
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
    fail(path, text("cannot be written: ", reason_of(error)));
  }
  const auto folder = std::filesystem::path(path).parent_path();
  disk->sync_folder(folder.empty() ? "." : folder);
}

}  // namespace cohort
