// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "cohort/core/error.h"

namespace cohort {
namespace {

using nlohmann::json;

constexpr const char* kMetadata = "__metadata__";
constexpr size_t kMaxDims = 64;  // the most that ATen's operators take
constexpr int kHeaderDepth = 4;  // nesting allowed; the format has 2

[[noreturn]] void fail_header(const std::string& path, const std::string& what) {
  throw CheckpointError(text("[checkpoint.safetensors] ", path, ": ", what));
}

[[noreturn]] void fail_header(const std::string& path, const std::string& tensor,
                              const std::string& what) {
  fail_header(path, text("tensor '", tensor, "': ", what));
}

// A JSON object with a key twice is legal JSON, and a way to show two readers two
// different files. The parser calls this for every key.
class KeysOnce {
 public:
  explicit KeysOnce(const std::string& path) : path_(path) {}

  bool operator()(int depth, json::parse_event_t event, const json& value) {
    if (depth > kHeaderDepth) fail_header(path_, "the header is nested too deep");
    if (event == json::parse_event_t::object_start) {
      open_.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      open_.pop_back();
    } else if (event == json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!open_.back().insert(key).second) {
        fail_header(path_, text("the header has the name '", key, "' twice"));
      }
    }
    return true;
  }

 private:
  const std::string& path_;
  std::vector<std::set<std::string>> open_;
};

json parse_json(std::string_view bytes, const std::string& path) {
  if (bytes.empty() || bytes[0] != '{') {
    fail_header(
        path, "at byte 8: the header does not start with '{': not a safetensors file");
  }
  KeysOnce once(path);
  try {
    return json::parse(bytes.begin(), bytes.end(), std::ref(once));
  } catch (const json::parse_error& error) {
    fail_header(path, text("at byte ", 8 + (error.byte > 0 ? error.byte - 1 : 0),
                           ": the header is not JSON"));
  } catch (const json::exception&) {  // 1e999
    fail_header(path, "the header has a number out of range");
  }
}

int64_t to_size(const json& value, const std::string& path, const std::string& name,
                const char* what) {
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kMost) {
    fail_header(path, name, text(what, " is not a whole number from 0 on"));
  }
  return value.get<int64_t>();
}

const json& field(const json& tensor, const char* key, json::value_t type,
                  const std::string& path, const std::string& name) {
  const auto found = tensor.find(key);
  if (found == tensor.end() || found->type() != type) {
    fail_header(path, name,
                text(key, " is missing or of another kind; expected ",
                     type == json::value_t::array ? "an array" : "a string"));
  }
  return *found;
}

at::ScalarType to_dtype(const std::string& dtype, const std::string& path,
                        const std::string& name) {
  if (const auto found = safetensors_dtype(dtype)) return *found;
  fail_header(path, name, text("dtype ", dtype, "; legal: ", safetensors_dtypes()));
}

// Bytes of the tensor, or -1 if its sizes are too large to multiply, even beside a
// size of zero: strides are their product.
int64_t byte_size(const TensorEntry& entry) {
  auto bytes = static_cast<int64_t>(c10::elementSize(entry.dtype));
  bool empty = false;
  for (const int64_t n : entry.shape) {
    empty = empty || n == 0;
    if (n > std::numeric_limits<int64_t>::max() / bytes) return -1;
    bytes *= std::max<int64_t>(n, 1);
  }
  return empty ? 0 : bytes;
}

void check_bytes(const TensorEntry& entry, const std::string& path) {
  const int64_t bytes = byte_size(entry);
  if (bytes != entry.end - entry.begin) {
    fail_header(path, entry.name,
                text("data_offsets ", entry.begin, " to ", entry.end, " hold ",
                     entry.end - entry.begin, " bytes; its dtype and shape need ",
                     bytes < 0 ? "more than 2^63" : std::to_string(bytes)));
  }
}

TensorEntry parse_entry(const std::string& name, const json& value,
                        const std::string& path) {
  if (!value.is_object()) fail_header(path, name, "is not an object");
  TensorEntry entry;
  entry.name = name;
  entry.dtype =
      to_dtype(field(value, "dtype", json::value_t::string, path, name), path, name);
  for (const auto& n : field(value, "shape", json::value_t::array, path, name)) {
    entry.shape.push_back(to_size(n, path, name, "a size in its shape"));
  }
  if (entry.shape.size() > kMaxDims) {
    fail_header(
        path, name,
        text("has ", entry.shape.size(), " dimensions; legal: at most ", kMaxDims));
  }
  const auto& offsets = field(value, "data_offsets", json::value_t::array, path, name);
  if (offsets.size() != 2) {
    fail_header(path, name,
                text("data_offsets has ", offsets.size(), " numbers; expected 2"));
  }
  entry.begin = to_size(offsets[0], path, name, "data_offsets[0]");
  entry.end = to_size(offsets[1], path, name, "data_offsets[1]");
  if (entry.begin > entry.end) {
    fail_header(
        path, name,
        text("data_offsets ", entry.begin, " to ", entry.end, " run backwards"));
  }
  check_bytes(entry, path);
  return entry;
}

void check_cover(const std::vector<TensorEntry>& entries, int64_t data_size,
                 const std::string& path) {
  std::vector<const TensorEntry*> order;
  for (const auto& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  int64_t next = 0;
  for (const auto* entry : order) {
    if (entry->end > data_size) {
      fail_header(path, entry->name,
                  text("truncated: its data ends at ", entry->end, " but the file has ",
                       data_size, " bytes of data"));
    }
    if (entry->begin != next) {
      fail_header(path, entry->name,
                  text("data_offsets begin at ", entry->begin, "; expected ", next,
                       ", the end of the one before"));
    }
    next = entry->end;
  }
  if (next != data_size) {
    fail_header(path, text("extra bytes: the tensors end at ", next,
                           " but the file has ", data_size, " bytes of data"));
  }
}

}  // namespace

std::string format_header(const SafetensorsHeader& header, const std::string& path) {
  json root = json::object();
  if (!header.metadata.empty()) root[kMetadata] = header.metadata;
  for (const auto& entry : header.entries) {
    if (entry.name == kMetadata)
      fail_header(path, entry.name, "the format reserves this name");
    const bool added =
        root.emplace(entry.name, json{{"dtype", safetensors_dtype(entry.dtype)},
                                      {"shape", entry.shape},
                                      {"data_offsets", {entry.begin, entry.end}}})
            .second;
    if (!added) fail_header(path, entry.name, "given twice; legal: once");
  }
  std::string bytes;
  try {
    bytes = root.dump();
  } catch (const json::type_error&) {
    fail_header(path, "a name or the metadata is not UTF-8");
  }
  bytes.resize((bytes.size() + 7) / 8 * 8, ' ');
  return bytes;
}

SafetensorsHeader parse_header(std::string_view bytes, int64_t data_size,
                               const std::string& path) {
  const json root = parse_json(bytes, path);
  SafetensorsHeader header;
  for (const auto& [name, value] : root.items()) {  // sorted: json objects are maps
    if (name != kMetadata) {
      header.entries.push_back(parse_entry(name, value, path));
      continue;
    }
    if (!value.is_object()) fail_header(path, "__metadata__ is not an object");
    for (const auto& [key, item] : value.items()) {
      if (!item.is_string()) {
        fail_header(path, text("__metadata__ '", key, "' is not a string"));
      }
      header.metadata[key] = item;
    }
  }
  check_cover(header.entries, data_size, path);
  return header;
}

}  // namespace cohort
