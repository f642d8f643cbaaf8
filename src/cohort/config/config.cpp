// SPDX-License-Identifier: Apache-2.0
#include "cohort/config.h"

#include <utility>

#include "cohort/config/yaml.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/json.h"
#include "cohort/core/parse.h"
#include "cohort/core/table.h"

namespace cohort {

Config::Config(Keys keys) : keys_(std::move(keys)) {
  for (const Key& key : keys_.all()) entries_.push_back({key.initial, "default"});
}

void Config::set(std::string_view name, std::string_view value,
                 std::string_view origin) {
  const int at = keys_.find(name, origin);
  entries_[at] = {keys_.all()[at].parse(value, origin), std::string(origin)};
}

void Config::set_assignment(std::string_view assignment) {
  const size_t at = assignment.find('=');
  if (at == std::string_view::npos || trim(assignment.substr(0, at)).empty()) {
    throw ConfigError(
        text("[config] --set: '", assignment, "' is not of the form key=value"));
  }
  set(trim(assignment.substr(0, at)), assignment.substr(at + 1), "--set");
}

void Config::load_file(const std::filesystem::path& path) {
  load_text(read_file(path, ErrorKind::kConfig, kMostYamlBytes), path.string());
}

void Config::load_text(std::string_view yaml, const std::string& name) {
  Config changed = *this;
  for (const auto& [key, value, origin] : read_yaml(yaml, name)) {
    changed.set(key, value, origin);
  }
  *this = std::move(changed);
}

const Config::Entry& Config::entry(std::string_view name) const {
  const int at = keys_.find(name);
  COHORT_CHECK(at >= 0, "no key '", name, "' in the schema");
  return entries_[at];
}

template <typename T>
const T& Config::get(std::string_view name) const {
  const T* value = std::get_if<T>(&entry(name).value);
  COHORT_CHECK(value, "key '", name, "' is of another type");
  return *value;
}

bool Config::get_bool(std::string_view name) const { return get<bool>(name); }
int64_t Config::get_int(std::string_view name) const { return get<int64_t>(name); }
double Config::get_float(std::string_view name) const { return get<double>(name); }
const std::string& Config::get_string(std::string_view name) const {
  return get<std::string>(name);
}

const std::string& Config::origin(std::string_view name) const {
  return entry(name).origin;
}

std::string Config::to_json() const {
  JsonObject object;
  for (size_t i = 0; i < entries_.size(); ++i) {
    std::visit([&](const auto& value) { object.add(keys_.all()[i].name, value); },
               entries_[i].value);
  }
  return object.text();
}

std::string Config::describe() const {
  Table table;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const auto value = to_text(entries_[i].value);
    table.push_back(
        {keys_.all()[i].name, value.empty() ? "\"\"" : value, entries_[i].origin});
  }
  return format_table(table);
}

}  // namespace cohort
