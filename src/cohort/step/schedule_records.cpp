// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/schedule_records.h"

#include <algorithm>
#include <map>

#include "cohort/comm/dtype.h"
#include "cohort/core/error.h"
#include "cohort/core/parse.h"
#include "cohort/step/csv_columns.h"

namespace cohort::csv {
namespace {

constexpr int64_t kMostNumber = int64_t{1} << 60;
constexpr int64_t kMostSize = 1 << 20;  // sizes of a mesh, numbers of listed things
constexpr std::array kTypes = {at::kFloat, at::kDouble, at::kBFloat16,
                               at::kHalf,  at::kLong,   at::kByte};

std::string axes_text(AxisSet axes) {
  std::string out;
  for (const Axis axis : kNamedAxes)
    if (axes.has(axis)) out += text(out.empty() ? "" : "+", name_of(axis));
  return out.empty() ? "none" : out;
}

std::string numbers_text(const std::vector<int>& numbers) {
  std::string out;
  for (const int number : numbers) out += text(out.empty() ? "" : ";", number);
  return out;
}

std::string channel_text(const Channel& channel) {
  switch (channel.kind) {
    case Channel::Kind::kCompute:
      return "kind=compute";
    case Channel::Kind::kGroup:
      return text("kind=group,group=", channel.group);
    case Channel::Kind::kLink:
      return text("kind=link,from=", channel.from, ",to=", channel.to);
    case Channel::Kind::kCopy:
      break;
  }
  return "kind=copy";
}

// The cells of one record, by name.
class Cells {
 public:
  explicit Cells(std::string_view line) {
    for (const auto& cell : split(line, ',')) {
      const auto equals = cell.find('=');
      if (equals == std::string::npos) throw RecordError{quoted(cell, "NAME=VALUE")};
      if (!cells_.emplace(cell.substr(0, equals), cell.substr(equals + 1)).second)
        throw RecordError{quoted(cell, "each name once")};
    }
  }

  static std::string quoted(std::string_view found, const std::string& legal) {
    return text("'", shown(found), "'; legal: ", legal);
  }

  std::string take(const std::string& name) {
    const auto it = cells_.find(name);
    if (it == cells_.end())
      throw RecordError{text("no ", name, "; legal: ", name, "=VALUE")};
    std::string value = std::move(it->second);
    cells_.erase(it);
    return value;
  }
  bool has(const std::string& name) const { return cells_.contains(name); }

  int64_t number(const std::string& name, int64_t low, int64_t high) {
    const std::string cell = take(name);
    const auto value = try_parse_int(cell);
    if (!value || *value < low || *value > high)
      throw RecordError{quoted(cell, text(name, "=a number from ", low, " to ", high))};
    return *value;
  }
  int small(const std::string& name) {
    return static_cast<int>(number(name, 0, kMostSize));
  }
  bool flag(const std::string& name) { return number(name, 0, 1) == 1; }

  std::vector<int> numbers(const std::string& name) {
    std::vector<int> all;
    const std::string cell = take(name);
    for (const auto& item : split(cell, ';')) {
      const auto value = try_parse_int(item);
      if (!value || *value < 0 || *value > kMostSize)
        throw RecordError{
            quoted(cell, text(name, "=numbers from 0 to ", kMostSize, " with ';'"))};
      all.push_back(static_cast<int>(*value));
    }
    return all;
  }

  template <typename T, typename Names>
  T choice(const std::string& name, const Names& names) {
    const std::string cell = take(name);
    std::string legal;
    for (const auto& [value, spelled] : names) {
      if (spelled == cell) return value;
      legal += text(legal.empty() ? "" : ", ", spelled);
    }
    throw RecordError{quoted(cell, legal)};
  }
  at::ScalarType dtype(const std::string& name) {
    std::vector<std::pair<at::ScalarType, std::string_view>> types;
    for (const auto type : kTypes) types.emplace_back(type, dtype_name(type));
    return choice<at::ScalarType>(name, types);
  }

  AxisSet axes(const std::string& name) {
    AxisSet set;
    const std::string cell = take(name);
    if (cell == "none") return set;
    for (const auto& item : split(cell, '+')) {
      const auto it = std::find_if(kNamedAxes.begin(), kNamedAxes.end(),
                                   [&](Axis axis) { return name_of(axis) == item; });
      if (it == kNamedAxes.end())
        throw RecordError{quoted(cell, "axes with '+', as in replicate+cut")};
      set = set | AxisSet{*it};
    }
    if (set.meets(kExpertAxes) && set.meets(kRecutAxes))
      throw RecordError{quoted(cell, "cut and cp, or edp and ep")};
    return set;
  }

  void end() const {
    if (!cells_.empty())
      throw RecordError{quoted(cells_.begin()->first, "no such name in this record")};
  }

 private:
  std::map<std::string, std::string> cells_;
};

Mesh read_mesh(Cells& cells) {
  std::array<int, kAxes> sizes;
  int64_t world = 1;
  for (size_t i = 0; i < kAxes; ++i) {
    const std::string name(name_of(kAllAxes[i]));
    sizes[i] = static_cast<int>(cells.number(name, 1, kMostSize));
    world *= sizes[i];
    if (world > kMostSize)
      throw RecordError{
          text("a world of ", world, " ranks; legal: at most ", kMostSize)};
  }
  if (!cells.has("ep")) return Mesh(sizes);
  const int experts = cells.small("ep");
  const int64_t ranks = Mesh(sizes).size(kRecutAxes);
  if (experts < 1 || ranks % experts != 0)
    throw RecordError{text("ep=", experts, "; legal: what divides cut x cp = ", ranks)};
  return Mesh(sizes, experts);
}

Channel read_channel(Cells& cells) {
  const std::string kind = cells.take("kind");
  if (kind == "compute") return {.kind = Channel::Kind::kCompute};
  if (kind == "copy") return {.kind = Channel::Kind::kCopy};
  if (kind == "group")
    return {.kind = Channel::Kind::kGroup, .group = cells.small("group")};
  if (kind == "link")
    return {.kind = Channel::Kind::kLink,
            .from = cells.small("from"),
            .to = cells.small("to")};
  throw RecordError{Cells::quoted(kind, "compute, group, link or copy")};
}

Buffer::Memory read_memory(Cells& cells) {
  if (!cells.has("place")) return Buffer::Memory::kHost;
  std::vector<std::pair<Buffer::Memory, std::string_view>> memories;
  for (int m = 0; m < kBufferMemories; ++m) {
    const auto memory = static_cast<Buffer::Memory>(m);
    memories.emplace_back(memory, name_of(memory));
  }
  return cells.choice<Buffer::Memory>("place", memories);
}

std::string memory_text(Buffer::Memory memory) {
  return memory == Buffer::Memory::kHost ? "" : text(",place=", name_of(memory));
}

Stage read_stage(Cells& cells) {
  return {.place = cells.small("place"), .blocks = cells.numbers("blocks")};
}

void read_step(Cells& cells, Schedule& schedule) {
  schedule.slices = static_cast<int>(cells.number("slices", 1, int64_t{1} << 30));
  schedule.shard = static_cast<int>(cells.number("shard", 0, 3));
  schedule.exact = cells.flag("exact");
  schedule.elastic = cells.flag("elastic");
  schedule.keeps_sums = cells.flag("keeps_sums");
  schedule.precision = {cells.dtype("compute"), cells.dtype("reduce"),
                        cells.dtype("accumulate")};
  if (cells.has("runs_ahead")) schedule.runs_ahead = cells.flag("runs_ahead");
  schedule.computes_in = read_memory(cells);
}

Group read_group(Cells& cells) {
  Group group{.name = cells.take("name"), .axes = cells.axes("axes")};
  if (group.name.size() > 40 || !is_group_name(group.name))
    throw RecordError{Cells::quoted(group.name, "at most 40 of a to z, 0 to 9 and _")};
  if (cells.has("places")) group.places = cells.numbers("places");
  if (cells.has("mirrors")) group.mirrors = cells.flag("mirrors");
  return group;
}

// What was meant before records of buckets said so.
AxisSet default_cut(const Schedule& schedule) {
  return schedule.shard > 0 ? AxisSet{Axis::kCut} : AxisSet();
}

Bucket read_bucket(Cells& cells, const Schedule& schedule) {
  Bucket bucket;
  bucket.numel = cells.number("numel", 0, kMostNumber / 8);
  bucket.trained = cells.flag("trained");
  bucket.dtype = cells.dtype("dtype");
  bucket.slot = cells.small("slot");
  bucket.joined = cells.flag("joined");
  bucket.sum = cells.axes("sum");
  bucket.cut = cells.has("cut") ? cells.axes("cut") : default_cut(schedule);
  bucket.blocks = cells.numbers("blocks");
  return bucket;
}

// What follows from the shard level is not said again.
std::string cut_text(const Schedule& schedule, const Bucket& bucket) {
  if (bucket.cut == default_cut(schedule)) return "";
  return text(",cut=", axes_text(bucket.cut));
}

Buffer read_buffer(Cells& cells) {
  std::vector<std::pair<Buffer::Holds, std::string_view>> kinds;
  for (int k = 0; k < kBufferKinds; ++k) {
    const auto holds = static_cast<Buffer::Holds>(k);
    kinds.emplace_back(holds, name_of(holds));
  }
  Buffer buffer;
  buffer.holds = cells.choice<Buffer::Holds>("holds", kinds);
  if (cells.has("bucket")) buffer.bucket = cells.small("bucket");
  buffer.dtype = cells.dtype("dtype");
  buffer.numel = cells.number("numel", 0, kMostNumber / 8);
  buffer.memory = read_memory(cells);
  return buffer;
}

}  // namespace

void write_records(std::ostream& out, const Schedule& schedule) {
  const Precision& precision = schedule.precision;
  out << "#@ version number=2\n#@ mesh ";
  for (size_t i = 0; i < kAxes; ++i)
    out << (i > 0 ? "," : "") << name_of(kAllAxes[i]) << '='
        << schedule.mesh.size(kAllAxes[i]);
  if (const int experts = schedule.mesh.size(Axis::kExpert); experts > 1)
    out << ",ep=" << experts;
  out << "\n#@ step slices=" << schedule.slices << ",shard=" << schedule.shard
      << ",exact=" << schedule.exact << ",elastic=" << schedule.elastic
      << ",keeps_sums=" << schedule.keeps_sums
      << ",compute=" << dtype_name(precision.compute)
      << ",reduce=" << dtype_name(precision.reduce)
      << ",accumulate=" << dtype_name(precision.accumulate)
      << (schedule.runs_ahead ? ",runs_ahead=1" : "")
      << memory_text(schedule.computes_in) << '\n';
  for (const auto& group : schedule.groups) {
    out << "#@ group name=" << group.name << ",axes=" << axes_text(group.axes);
    if (!group.places.empty()) out << ",places=" << numbers_text(group.places);
    if (group.mirrors) out << ",mirrors=1";
    out << '\n';
  }
  for (const auto& channel : schedule.channels)
    out << "#@ channel " << channel_text(channel) << '\n';
  for (std::string name : schedule.blocks) {
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c < ' ' || c == 0x7f; }, ' ');
    out << "#@ block " << trim(name) << '\n';
  }
  for (const auto& stage : schedule.stages)
    out << "#@ stage place=" << stage.place << ",blocks=" << numbers_text(stage.blocks)
        << '\n';
  for (const auto& bucket : schedule.buckets)
    out << "#@ bucket numel=" << bucket.numel << ",trained=" << bucket.trained
        << ",dtype=" << dtype_name(bucket.dtype) << ",slot=" << bucket.slot
        << ",joined=" << bucket.joined << ",sum=" << axes_text(bucket.sum)
        << cut_text(schedule, bucket) << ",blocks=" << numbers_text(bucket.blocks)
        << '\n';
  for (const auto& buffer : schedule.buffers) {
    out << "#@ buffer holds=" << name_of(buffer.holds);
    if (buffer.bucket != kNone) out << ",bucket=" << buffer.bucket;
    out << ",dtype=" << dtype_name(buffer.dtype) << ",numel=" << buffer.numel
        << memory_text(buffer.memory) << '\n';
  }
}

void read_record(std::string_view line, Schedule& schedule) {
  const auto space = line.find(' ');
  const std::string_view kind = line.substr(0, space);
  if (kind == "block")
    return void(schedule.blocks.emplace_back(
        space == line.npos ? std::string_view() : line.substr(space + 1)));
  Cells cells(space == line.npos ? std::string_view() : line.substr(space + 1));
  if (kind == "version")
    cells.number("number", 2, 2);
  else if (kind == "mesh")
    schedule.mesh = read_mesh(cells);
  else if (kind == "step")
    read_step(cells, schedule);
  else if (kind == "group")
    schedule.groups.push_back(read_group(cells));
  else if (kind == "channel")
    schedule.channels.push_back(read_channel(cells));
  else if (kind == "stage")
    schedule.stages.push_back(read_stage(cells));
  else if (kind == "bucket")
    schedule.buckets.push_back(read_bucket(cells, schedule));
  else if (kind == "buffer")
    schedule.buffers.push_back(read_buffer(cells));
  else
    throw RecordError{Cells::quoted(
        kind, "version, mesh, step, group, channel, block, stage, bucket or buffer")};
  cells.end();
}

std::string access_text(const Access& access) {
  const Value& value = access.value;
  std::string out(name_of(value.what));
  if (value.of != kNone) out += std::to_string(value.of);
  if (value.slice != kNone) out += text('/', value.slice);
  if (value.version != 0) out += text('.', value.version);
  if (access.buffer != kNone) out += text('@', access.buffer);
  if (access.bytes != 0) out += text('=', access.bytes);
  return out;
}

std::optional<Access> parse_access(std::string_view cell) {
  const auto letter = [](char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; };
  size_t end = 0;
  while (end < cell.size() && letter(cell[end])) ++end;
  Access access;
  int what = 0;
  while (what < kWhats && name_of(static_cast<What>(what)) != cell.substr(0, end))
    ++what;
  if (what == kWhats) return std::nullopt;
  access.value.what = static_cast<What>(what);
  cell.remove_prefix(end);
  // The number behind a mark, if the mark is there.
  const auto take = [&](std::string_view mark, int64_t most, int64_t otherwise) {
    if (!cell.starts_with(mark)) return otherwise;
    cell.remove_prefix(mark.size());
    size_t digits = 0;
    while (digits < cell.size() && cell[digits] >= '0' && cell[digits] <= '9') ++digits;
    const auto value = try_parse_int(std::string(cell.substr(0, digits)));
    cell.remove_prefix(digits);
    return value && *value <= most ? *value : int64_t{-1};
  };
  constexpr int64_t kMostIndex = 1 << 30;
  const bool numbered = !cell.empty() && cell[0] >= '0' && cell[0] <= '9';
  const int64_t of = numbered ? take("", kMostIndex, kNone) : kNone;
  const int64_t slice = take("/", kMostIndex, kNone);
  const int64_t version = take(".", kMostIndex, 0);
  const int64_t buffer = take("@", kMostSize, kNone);
  const int64_t bytes = take("=", kMostNumber, 0);
  if (!cell.empty() || of == -1 || slice == -1 || version == -1 || buffer == -1 ||
      bytes == -1)
    return std::nullopt;
  access.value.of = static_cast<int>(of);
  access.value.slice = static_cast<int>(slice);
  access.value.version = static_cast<int>(version);
  access.buffer = static_cast<int>(buffer);
  access.bytes = bytes;
  return access;
}

std::string call_text(const InnerCall& call) {
  return text(call.group, ":", name_of(call.op), ":", call.bytes);
}

std::optional<InnerCall> parse_call(std::string_view cell) {
  const auto parts = split(cell, ':');
  if (parts.size() != 3) return std::nullopt;
  const auto group = try_parse_int(parts[0]), bytes = try_parse_int(parts[2]);
  int op = 0;
  while (op < InnerCall::kOps && name_of(static_cast<CallOp>(op)) != parts[1]) ++op;
  if (!group || *group < 0 || *group > kMostSize || !bytes || *bytes < 0 ||
      *bytes > kMostNumber || op == InnerCall::kOps)
    return std::nullopt;
  return InnerCall{.group = static_cast<int>(*group),
                   .op = static_cast<CallOp>(op),
                   .bytes = *bytes};
}

}  // namespace cohort::csv
