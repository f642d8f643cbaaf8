// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint_command.h"

#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <ostream>

#include "cli/exit_of_error.h"
#include "cohort/checkpoint/checkpoint.h"
#include "cohort/checkpoint/safetensors_header.h"
#include "cohort/checkpoint/tensor_source.h"
#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/core/json.h"
#include "cohort/core/parse.h"
#include "cohort/core/table.h"
#include "recipes/saved_model.h"

namespace cohort::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kDone = 0;
constexpr int kDifferent = 1;  // as of every command that compares

std::string saved_at(const std::string& folder) {
  struct stat info {};
  if (::stat((folder + "/manifest.json").c_str(), &info) != 0) return "?";
  return format_time(std::chrono::system_clock::from_time_t(info.st_mtime));
}

int64_t file_bytes(const Manifest& manifest, bool shared_only) {
  int64_t bytes = 0;
  for (const auto& file : manifest.files)
    if (!shared_only || file.name.starts_with("linked-")) bytes += file.bytes;
  return bytes;
}

std::string metrics_text(const RunState& run) {
  std::string out;
  for (const auto& [name, value] : run.metrics)
    out += text(out.empty() ? "" : " ", name, "=", format_quantity(value));
  return out;
}

RawJson metrics_json(const RunState& run) {
  JsonObject object;
  for (const auto& [name, value] : run.metrics) object.add(name, value);
  return {object.text()};
}

// Where there is no checkpoint.
[[noreturn]] void refuse_without(const std::string& path, std::string_view asked_by) {
  throw CheckpointError(text("[", asked_by, "] ", path,
                             ": is no checkpoint, nor has it one; legal: a "
                             "checkpoint, or a folder of them"));
}

int list(const CheckpointArgs& args, std::ostream& out) {
  if (!fs::is_directory(args.path))
    throw CheckpointError(text("[checkpoint.list] ", args.path, ": is no folder"));
  Table rows = {{"step", "saved", "bytes", "shared", "layout", "metrics", ""}};
  for (const auto& [path, step, trouble, manifest] : list_checkpoints(args.path)) {
    const int64_t bytes = file_bytes(manifest, false);
    const int64_t shared = file_bytes(manifest, true);
    if (args.json) {
      out << JsonObject()
                 .add("path", path)
                 .add("step", step)
                 .add("saved", saved_at(path))
                 .add("bytes", bytes)
                 .add("shared_bytes", shared)
                 .add("layout", manifest.run.layout)
                 .add("metrics", metrics_json(manifest.run))
                 .add("trouble", trouble)
                 .text()
          << std::endl;
    }
    rows.push_back(
        {std::to_string(step), saved_at(path), format_bytes(static_cast<double>(bytes)),
         format_bytes(static_cast<double>(shared)), manifest.run.layout,
         metrics_text(manifest.run), trouble.empty() ? "" : "damaged: " + trouble});
  }
  if (args.json) return kDone;
  out << (rows.size() == 1 ? text("no checkpoint in ", args.path, "\n")
                           : format_table(rows));
  return kDone;
}

void show_tensors(const Manifest& manifest, bool json, std::ostream& out) {
  Table rows = {{"tensor", "kind", "dtype", "shape", "bytes", "boxes"}};
  for (const auto& [tensor, boxes] : manifest.tensors) {
    const auto& spec = tensor.spec;
    size_t chunks = 0;
    for (const auto& saved : boxes) chunks += saved.chunks.size();
    if (json)
      out << JsonObject()
                 .add("tensor", spec.name)
                 .add("kind", kind_name(tensor.kind))
                 .add("dtype", safetensors_dtype(spec.dtype))
                 .add("shape", format_shape(spec.shape))
                 .add("bytes", spec.bytes())
                 .add("boxes", boxes.size())
                 .add("chunks", chunks)
                 .text()
          << std::endl;
    rows.push_back({spec.name, std::string(kind_name(tensor.kind)),
                    safetensors_dtype(spec.dtype), format_shape(spec.shape),
                    format_bytes(static_cast<double>(spec.bytes())),
                    std::to_string(boxes.size())});
  }
  if (!json) out << format_table(rows);
}

int show(const CheckpointArgs& args, std::ostream& out) {
  const std::string path = checkpoint_at(args.path, "checkpoint.show");
  const Manifest manifest = Checkpoint(path).manifest();
  const RunState& run = manifest.run;
  if (args.json) {
    JsonObject states;
    for (const auto& [name, bytes] : run.state) states.add(name, bytes.size());
    out << JsonObject()
               .add("path", path)
               .add("step", run.step)
               .add("epoch", run.epoch)
               .add("sample", run.sample)
               .add("seed", run.seed)
               .add("recipe", recipe_name_of(run))
               .add("layout", run.layout)
               .add("world", run.world)
               .add("program", manifest.program)
               .add("format", manifest.version)
               .add("bytes", file_bytes(manifest, false))
               .add("shared_bytes", file_bytes(manifest, true))
               .add("files", manifest.files.size())
               .add("tensors", manifest.tensors.size())
               .add("metrics", metrics_json(run))
               .add("state_bytes", RawJson{states.text()})
               .text()
        << std::endl;
    show_tensors(manifest, true, out);
    return kDone;
  }
  const std::string recipe = recipe_name_of(run);
  std::string states;
  for (const auto& [name, bytes] : run.state)
    states += text(states.empty() ? "" : ", ", name);
  out << format_table(
      {{"path", path},
       {"saved", text(saved_at(path), " by cohort ", manifest.program, ", format ",
                      manifest.version)},
       {"position",
        text("step ", run.step, ", epoch ", run.epoch, ", sample ", run.sample)},
       {"seed", std::to_string(run.seed)},
       {"recipe", recipe.empty() ? "-" : recipe},
       {"layout",
        text(run.layout.empty() ? "-" : run.layout, " on ", run.world, " ranks")},
       {"metrics", run.metrics.empty() ? "-" : metrics_text(run)},
       {"state", states.empty() ? "-" : states},
       {"files", text(manifest.files.size(), ", ",
                      format_bytes(static_cast<double>(file_bytes(manifest, false))),
                      " of which ",
                      format_bytes(static_cast<double>(file_bytes(manifest, true))),
                      " shared")}});
  out << "\n";
  show_tensors(manifest, false, out);
  return kDone;
}

int verify(const CheckpointArgs& args, std::ostream& out) {
  std::vector<std::string> paths;
  if (fs::exists(args.path + "/manifest.json"))
    paths.push_back(args.path);
  else
    for (const auto& info : list_checkpoints(args.path)) paths.push_back(info.path);
  if (paths.empty()) refuse_without(args.path, "checkpoint.verify");
  bool whole = true;
  for (const auto& path : paths) {
    std::vector<std::string> troubles;
    try {
      troubles = Checkpoint(path).verify();
    } catch (const CheckpointError& error) {
      troubles = {error.what()};
    }
    whole = whole && troubles.empty();
    if (args.json) {
      JsonArray list;
      for (const auto& trouble : troubles) list.add(trouble);
      out << JsonObject()
                 .add("path", path)
                 .add("whole", troubles.empty())
                 .add("troubles", RawJson{list.text()})
                 .text()
          << std::endl;
      continue;
    }
    out << path << (troubles.empty() ? "  whole" : "  damaged") << std::endl;
    for (const auto& trouble : troubles) out << "  " << trouble << std::endl;
  }
  return whole ? kDone : kExitCheckpoint;
}

int diff(const CheckpointArgs& args, std::ostream& out) {
  TensorSource a = open_tensors(args.path, args.key);
  TensorSource b = open_tensors(args.other, args.key);
  if (args.weights) {
    keep_weights(a);
    keep_weights(b);
  }
  const auto found = diff_tensors(a, b);
  Table rows = {{"tensor", "different", "largest", "relative", ""}};
  for (const auto& one : found) {
    if (args.json)
      out << JsonObject()
                 .add("tensor", one.name)
                 .add("form", one.form)
                 .add("different", one.different)
                 .add("elements", one.numel)
                 .add("max_absolute", one.max_absolute)
                 .add("max_relative", one.max_relative)
                 .text()
          << std::endl;
    rows.push_back({one.name, text(one.different, " of ", one.numel),
                    text(one.max_absolute), text(one.max_relative), one.form});
  }
  if (!args.json && !found.empty()) out << format_table(rows);
  if (!args.json)
    out << (found.empty() ? text("equal: ", a.tensors.size(), " tensors\n")
                          : text(found.size(), " tensors differ\n"));
  return found.empty() ? kDone : kDifferent;
}

void tell(const CheckpointArgs& args, const std::string& path,
          const TensorSource& source, std::ostream& out) {
  if (args.json)
    out << JsonObject()
               .add("path", path)
               .add("from", source.path)
               .add("form", form_name(source.form))
               .add("tensors", source.tensors.size())
               .text()
        << std::endl;
  else
    out << path << "  " << source.tensors.size() << " tensors of " << source.path
        << std::endl;
}

int export_to(const CheckpointArgs& args, std::ostream& out) {
  ExportOptions options;
  const auto form = form_of_name(args.to);
  if (!form || *form == TensorForm::kCheckpoint)
    throw ConfigError(
        text("[checkpoint.export] --to ", args.to, "; legal: safetensors, pt, hf"));
  options.form = *form;
  options.max_shard_bytes = parse_bytes(args.max_shard, "--max-shard");
  if (!args.dtype.empty()) {
    options.dtype = safetensors_dtype(std::string_view(args.dtype));
    if (!options.dtype || !at::isFloatingType(*options.dtype))
      throw ConfigError(text("[checkpoint.export] --dtype ", args.dtype,
                             "; legal: F64, F32, F16, BF16"));
  }
  TensorSource source = open_tensors(args.path, args.key);
  if (!args.all) keep_weights(source);
  export_tensors(source, args.other, options);
  tell(args, args.other, source, out);
  return kDone;
}

// Also import: whatever the source is, as a checkpoint in so many files.
int reshape(const CheckpointArgs& args, std::ostream& out) {
  TensorSource source = open_tensors(args.path, args.key);
  const bool checkpoint = source.form == TensorForm::kCheckpoint;
  if (args.action == "import" && checkpoint)
    throw CheckpointError(text("[checkpoint.import] ", source.path,
                               ": is a checkpoint already; legal: another form"));
  if (args.action == "reshape" && !checkpoint)
    throw CheckpointError(text("[checkpoint.reshape] ", source.path, ": is a ",
                               form_name(source.form), "; legal: a checkpoint"));
  if (args.action == "import") source.run.step = args.step;
  tell(args, write_checkpoint(source, args.other, args.files), source, out);
  return kDone;
}

}  // namespace

std::string checkpoint_at(const std::string& path, std::string_view asked_by) {
  std::error_code ignored;
  if (fs::exists(path + "/manifest.json", ignored)) return path;
  std::vector<std::string> troubles;
  const auto newest = latest_checkpoint(path, &troubles);
  if (!newest && !troubles.empty()) throw CheckpointError(troubles.front());
  if (!newest) refuse_without(path, asked_by);
  for (const auto& trouble : troubles)
    std::fprintf(stderr, "%s\n", text("passed over: ", trouble).c_str());
  return *newest;
}

int run_checkpoint(const CheckpointArgs& args, std::ostream& out) {
  if (args.action == "list") return list(args, out);
  if (args.action == "show") return show(args, out);
  if (args.action == "verify") return verify(args, out);
  if (args.action == "diff") return diff(args, out);
  if (args.action == "export") return export_to(args, out);
  return reshape(args, out);
}

}  // namespace cohort::cli
