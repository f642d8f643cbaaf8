// SPDX-License-Identifier: Apache-2.0
// The text of a manifest: docs/formats/checkpoint.md.
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "cohort/checkpoint/manifest.h"
#include "cohort/checkpoint/safetensors_header.h"
#include "cohort/core/error.h"
#include "cohort/core/hash.h"

namespace cohort {
namespace {

using Json = nlohmann::ordered_json;  // to write: members in the order of the format
using ReadJson = nlohmann::json;      // to read: many members are found fast

constexpr const char* kFormat = "cohort-checkpoint";
constexpr int kUncutVersion = 1;   // had no boxes
constexpr int kManifestDepth = 8;  // nesting allowed; the format has 6
// The end of the file: ,"hash":"0123456789abcdef"}\n
constexpr std::string_view kBeforeHash = ",\"hash\":\"";
constexpr std::string_view kAfterHash = "\"}\n";
constexpr size_t kHashDigits = 16;
constexpr size_t kTail = kBeforeHash.size() + kHashDigits + kAfterHash.size();

[[noreturn]] void fail_manifest(const std::string& path, const std::string& what) {
  throw CheckpointError(text("[checkpoint.manifest] ", path, ": ", what));
}

// Calls `body`; what JSON throws becomes our one line.
template <typename Body>
auto guarded(const std::string& path, const char* what, Body&& body) {
  try {
    return body();
  } catch (const Json::exception& error) {  // ReadJson throws the same class
    std::string reason = error.what();  // "[json.exception.type_error.302] type ..."
    fail_manifest(path, text(what, ": ", reason.substr(reason.find("] ") + 2)));
  }
}

ReadJson parsed(std::string_view bytes, const std::string& path) {
  return ReadJson::parse(bytes, [&](int depth, ReadJson::parse_event_t, ReadJson&) {
    if (depth > kManifestDepth) fail_manifest(path, "is nested too deep");
    return true;
  });
}

// A whole number in the range of T: JSON's own may be a fraction, or 1e300.
template <typename T>
T whole(const ReadJson& value, const std::string& path) {
  const bool positive = value.is_number_unsigned();
  const bool fits =
      positive ? std::in_range<T>(value.get<uint64_t>())
               : value.is_number_integer() && std::in_range<T>(value.get<int64_t>());
  if (!fits)
    fail_manifest(path, text("cannot be read: ", value.dump().substr(0, 40),
                             " is no whole number in range"));
  return positive ? static_cast<T>(value.get<uint64_t>())
                  : static_cast<T>(value.get<int64_t>());
}

std::vector<int64_t> whole_list(const ReadJson& values, const std::string& path) {
  std::vector<int64_t> out;
  for (const auto& value : values) out.push_back(whole<int64_t>(value, path));
  return out;
}

uint64_t from_hex16(const std::string& digits) {
  uint64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, 16);
  if (digits.size() != kHashDigits || stop != end || error != std::errc())
    throw CheckpointError(text("[checkpoint.manifest] '", digits,
                               "' is no hash; legal: 16 hexadecimal digits"));
  return value;
}

// A state is text where it can be, else {"hex": "..."}.
Json state_json(const std::string& bytes) {
  try {
    (void)Json(bytes).dump();
    return bytes;
  } catch (const Json::type_error&) {
    std::string digits;
    for (const unsigned char byte : bytes) {
      digits += "0123456789abcdef"[byte >> 4];
      digits += "0123456789abcdef"[byte & 15];
    }
    return Json{{"hex", digits}};
  }
}

std::string state_of(const ReadJson& value) {
  if (value.is_string()) return value;
  const auto digits = value.at("hex").get<std::string>();
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>(from_hex16("00000000000000" + digits.substr(i, 2)));
  return bytes;
}

Json chunks_json(const std::vector<SavedChunk>& chunks) {
  Json out = Json::array();
  for (const auto& c : chunks)
    out.push_back(Json::array({c.begin, c.end, c.file, c.offset, hex16(c.hash)}));
  return out;
}

Json tensor_json(const TensorRecord& record) {
  const auto& [spec, kind, order] = record.tensor;
  Json out = {{"name", spec.name},
              {"kind", kind_name(kind)},
              {"dtype", safetensors_dtype(spec.dtype)},
              {"shape", spec.shape}};
  if (!order.empty()) out["order"] = order;
  const auto& boxes = record.boxes;
  if (boxes.size() == 1 && boxes[0].box.is_whole()) {
    out["chunks"] = chunks_json(boxes[0].chunks);
    return out;
  }
  out["cut"] = boxes.empty() ? std::vector<int64_t>() : boxes[0].box.cut;
  out["boxes"] = Json::array();
  for (const auto& [box, chunks] : boxes)
    out["boxes"].push_back(
        {{"from", box.from}, {"to", box.to}, {"chunks", chunks_json(chunks)}});
  return out;
}

TensorKind kind_of(const std::string& name, const std::string& path) {
  for (const auto kind :
       {TensorKind::kParameter, TensorKind::kMoment, TensorKind::kBuffer})
    if (name == kind_name(kind)) return kind;
  fail_manifest(path, text("kind '", name, "'; legal: parameter moment buffer"));
}

SavedChunk chunk_of(const ReadJson& value, const std::string& path) {
  return {.begin = whole<int64_t>(value.at(0), path),
          .end = whole<int64_t>(value.at(1), path),
          .file = whole<int>(value.at(2), path),
          .offset = whole<int64_t>(value.at(3), path),
          .hash = from_hex16(value.at(4).get<std::string>())};
}

std::vector<SavedChunk> chunks_of(const ReadJson& values, const std::string& path) {
  std::vector<SavedChunk> chunks;
  for (const auto& chunk : values) chunks.push_back(chunk_of(chunk, path));
  return chunks;
}

// A tensor that is not cut has its chunks without a box, in every version.
std::vector<SavedBox> boxes_of(const ReadJson& value, int version,
                               const std::string& path) {
  if (version == kUncutVersion || !value.contains("boxes"))
    return {{.box = {}, .chunks = chunks_of(value.at("chunks"), path)}};
  std::vector<SavedBox> boxes;
  const auto cut = whole_list(value.at("cut"), path);
  for (const auto& box : value.at("boxes"))
    boxes.push_back({.box = {.cut = cut,
                             .from = whole_list(box.at("from"), path),
                             .to = whole_list(box.at("to"), path)},
                     .chunks = chunks_of(box.at("chunks"), path)});
  return boxes;
}

TensorRecord tensor_of(const ReadJson& value, int version, const std::string& path) {
  TensorRecord record;
  auto& [spec, kind, order] = record.tensor;
  spec.name = value.at("name");
  kind = kind_of(value.at("kind"), path);
  const auto dtype = value.at("dtype").get<std::string>();
  const auto found = safetensors_dtype(std::string_view(dtype));
  if (!found)
    fail_manifest(path, text("tensor '", spec.name, "': dtype ", dtype,
                             "; legal: ", safetensors_dtypes()));
  spec.dtype = *found;
  spec.shape = whole_list(value.at("shape"), path);
  if (value.contains("order")) order = whole_list(value.at("order"), path);
  record.boxes = boxes_of(value, version, path);
  return record;
}

void add_tables(Json& root, const Manifest& manifest) {
  root["chunk_bytes"] = manifest.chunk_bytes;
  root["files"] = Json::array();
  for (const auto& file : manifest.files)
    root["files"].push_back({{"name", file.name},
                             {"bytes", file.bytes},
                             {"header_hash", hex16(file.header_hash)},
                             {"hash", hex16(file.hash)}});
  root["tensors"] = Json::array();
  for (const auto& record : manifest.tensors)
    root["tensors"].push_back(tensor_json(record));
}

void read_tables(const ReadJson& root, Manifest& manifest, const std::string& path) {
  manifest.chunk_bytes = whole<int64_t>(root.at("chunk_bytes"), path);
  for (const auto& file : root.at("files"))
    manifest.files.push_back({file.at("name"), whole<int64_t>(file.at("bytes"), path),
                              from_hex16(file.at("header_hash").get<std::string>()),
                              from_hex16(file.at("hash").get<std::string>())});
  for (const auto& tensor : root.at("tensors"))
    manifest.tensors.push_back(tensor_of(tensor, manifest.version, path));
}

Json run_json(const Manifest& manifest) {
  const RunState& run = manifest.run;
  Json root = {{"format", kFormat},
               {"version", kManifestVersion},
               {"program", manifest.program},
               {"build", manifest.build},
               {"step", run.step},
               {"epoch", run.epoch},
               {"sample", run.sample},
               {"seed", run.seed},
               {"layout", run.layout},
               {"world", run.world}};
  root["metrics"] = Json::object();
  for (const auto& [name, value] : run.metrics) root["metrics"][name] = value;
  root["state"] = Json::object();
  for (const auto& [name, bytes] : run.state) root["state"][name] = state_json(bytes);
  return root;
}

void read_run(const ReadJson& root, Manifest& manifest, const std::string& path) {
  RunState& run = manifest.run;
  root.at("program").get_to(manifest.program);
  root.at("build").get_to(manifest.build);
  run.step = whole<int64_t>(root.at("step"), path);
  run.epoch = whole<int64_t>(root.at("epoch"), path);
  run.sample = whole<int64_t>(root.at("sample"), path);
  run.seed = whole<uint64_t>(root.at("seed"), path);
  root.at("layout").get_to(run.layout);
  run.world = whole<int>(root.at("world"), path);
  for (const auto& [name, value] : root.at("metrics").items())
    run.metrics[name] = value.is_null() ? std::nan("") : value.get<double>();
  for (const auto& [name, value] : root.at("state").items())
    run.state[name] = state_of(value);
}

// What the hash is of.
std::string_view checked_body(std::string_view bytes, const std::string& path) {
  const size_t size = bytes.size() < kTail ? 0 : bytes.size() - kTail;
  const std::string_view tail = bytes.substr(size);
  if (size == 0 || !tail.starts_with(kBeforeHash) || !tail.ends_with(kAfterHash))
    fail_manifest(path, text("truncated or altered: ", bytes.size(),
                             " bytes that do not end with a hash"));
  const auto said = tail.substr(kBeforeHash.size(), kHashDigits);
  const auto found = hex16(hash64(bytes.substr(0, size)));
  if (said != found)
    fail_manifest(path, text("altered: its bytes hash to ", found, ", it says ", said));
  return bytes.substr(0, size);
}

}  // namespace

std::string format_part(const Manifest& part, const std::string& path) {
  return guarded(path, "cannot be written", [&] {
    Json root = run_json(part);
    add_tables(root, part);
    return root.dump();
  });
}

Manifest parse_part(std::string_view bytes, const std::string& path) {
  return guarded(path, "cannot be read", [&] {
    Manifest part;
    const ReadJson root = parsed(bytes, path);
    read_run(root, part, path);
    read_tables(root, part, path);
    check_forms(part, path);
    return part;
  });
}

std::string format_manifest(const Manifest& manifest, const std::string& path) {
  std::string body = guarded(path, "cannot be written", [&] {
    Json root = run_json(manifest);
    add_tables(root, manifest);
    return root.dump();
  });
  body.pop_back();  // the closing brace comes behind the hash
  const auto hash = hex16(hash64(body));
  return text(body, kBeforeHash, hash, kAfterHash);
}

Manifest parse_manifest(std::string_view bytes, const std::string& path) {
  const std::string body = std::string(checked_body(bytes, path)) + "}";
  Manifest manifest = guarded(path, "cannot be read", [&] {
    const ReadJson root = parsed(body, path);
    if (root.at("format") != kFormat)
      fail_manifest(path, "is not the manifest of a checkpoint");
    const ReadJson& version = root.at("version");
    if (version != kManifestVersion && version != kUncutVersion)
      fail_manifest(path,
                    text("is of version ", version.dump(), "; this program reads ",
                         kUncutVersion, " and ", kManifestVersion));
    Manifest read{.version = whole<int>(version, path)};
    read_run(root, read, path);
    read_tables(root, read, path);
    return read;
  });
  check_manifest(manifest, path);
  for (auto& record : manifest.tensors)
    record.tensor.spec.end = record.tensor.spec.numel();
  return manifest;
}

std::map<std::string, std::string> parse_weight_map(std::string_view bytes,
                                                    const std::string& path) {
  return guarded(path, "cannot be read", [&] {
    std::map<std::string, std::string> files;
    const ReadJson root = parsed(bytes, path);
    for (const auto& [name, file] : root.at("weight_map").items()) files[name] = file;
    return files;
  });
}

std::string format_weight_map(const std::map<std::string, std::string>& files,
                              int64_t total_bytes) {
  Json root = {{"metadata", {{"total_size", total_bytes}}}};
  root["weight_map"] = files;
  return root.dump(2) + "\n";
}

}  // namespace cohort
