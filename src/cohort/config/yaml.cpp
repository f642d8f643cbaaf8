// SPDX-License-Identifier: Apache-2.0
#include "cohort/config/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <sstream>

#include "cohort/core/error.h"

namespace cohort {
namespace {

// Deeper than any key; an alias that contains itself would go on for ever.
constexpr int kYamlDepth = 16;
// Nine aliases of nine aliases of ... are 9^n values in n lines: what all of them
// repeat is bounded by the text that is there, and so many characters more.
constexpr size_t kRepeatedText = 10'000;
constexpr int kMostDocuments = 100;  // in a file; all but one are empty

class YamlReader {
 public:
  YamlReader(const std::string& file, size_t bytes)
      : file_(file), most_(2 * bytes + kRepeatedText) {}

  void read_map(const YAML::Node& map, const std::string& prefix, int depth) {
    if (depth > kYamlDepth) refuse(map.Mark(), "maps are nested too deeply");
    for (const auto& member : map) {
      if (!member.first.IsScalar() || member.first.Scalar().empty()) {
        refuse(member.first.Mark(), "a key must be plain text");
      }
      const std::string key = prefix + member.first.Scalar();
      spend(member.first.Scalar().size(), member.first.Mark());
      if (member.second.IsMap()) {
        read_map(member.second, key + ".", depth + 1);
      } else {
        add(key, member.second, member.first.Mark());
      }
    }
  }

  [[noreturn]] void refuse(const YAML::Mark& mark, const std::string& why) const {
    throw ConfigError(text("[config] ", place(mark), ": ", why));
  }

  std::vector<YamlEntry> entries;

 private:
  std::string place(const YAML::Mark& mark) const {
    if (mark.is_null()) return file_;
    return text(file_, ":", mark.line + 1, ":", mark.column + 1);
  }

  void spend(size_t letters, const YAML::Mark& mark) {
    spent_ += letters + 1;
    if (spent_ > most_)
      refuse(mark, text("with its aliases written out, more than ", most_,
                        " characters; legal: at most that"));
  }

  void add(const std::string& key, const YAML::Node& value, const YAML::Mark& mark) {
    const auto [same, added] = places_.emplace(key, place(mark));
    if (!added) {
      refuse(mark, text("key '", key, "' comes twice; first at ", same->second));
    }
    if (value.IsNull()) {
      refuse(mark, text("key '", key, "' has no value; for an empty text write \"\""));
    }
    std::string list;
    for (const auto& item : value) {
      if (!item.IsScalar()) refuse(mark, text("'", key, "' is a list of non-values"));
      if (!list.empty()) list += ",";
      spend(item.Scalar().size(), mark);
      list += item.Scalar();
    }
    if (value.IsScalar()) spend(value.Scalar().size(), mark);
    entries.push_back({key, value.IsScalar() ? value.Scalar() : list, place(mark)});
  }

  std::string file_;
  std::map<std::string, std::string> places_;  // by key
  size_t most_, spent_ = 0;                    // characters, with aliases written out
};

// Refuses a second document that has something in it. Not by YAML::LoadAll: the parser
// finds empty documents without end in some texts ("&a,8~a}"), and it takes them all.
class OneDocument final : public YAML::EventHandler {
 public:
  explicit OneDocument(const YamlReader& reader) : reader_(reader) {}

  void OnDocumentStart(const YAML::Mark&) override { ++documents_; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { see(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                const std::string&) override {
    see(mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    see(mark);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    see(mark);
  }
  void OnMapEnd() override {}

 private:
  void see(const YAML::Mark& mark) const {
    if (documents_ > 1) reader_.refuse(mark, "a second document; legal: one");
  }

  const YamlReader& reader_;
  int documents_ = 0;
};

void require_one_document(const std::string& yaml, const YamlReader& reader) {
  std::istringstream in(yaml);
  YAML::Parser parser(in);
  OneDocument handler(reader);
  for (int i = 0; parser.HandleNextDocument(handler); ++i)
    if (i == kMostDocuments)
      reader.refuse(YAML::Mark::null_mark(), "documents without end; legal: one");
}

}  // namespace

std::vector<YamlEntry> read_yaml(std::string_view yaml, const std::string& file) {
  YamlReader reader(file, yaml.size());
  if (static_cast<int64_t>(yaml.size()) > kMostYamlBytes) {
    reader.refuse(YAML::Mark::null_mark(),
                  text(yaml.size(), " bytes; legal: at most ", kMostYamlBytes));
  }
  try {
    const std::string copy(yaml);
    require_one_document(copy, reader);
    const YAML::Node document = YAML::Load(copy);
    if (document.IsNull()) return {};
    if (!document.IsMap()) {
      reader.refuse(document.Mark(), "not a map of settings; legal: key: value");
    }
    reader.read_map(document, "", 0);
  } catch (const YAML::Exception& error) {
    reader.refuse(error.mark, error.msg);
  }
  return std::move(reader.entries);
}

}  // namespace cohort
