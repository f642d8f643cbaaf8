// SPDX-License-Identifier: Apache-2.0
// Every reader over every file of its corpus, without libFuzzer: seeds, and what was
// once a finding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/core/file.h"
#include "fuzz/targets.h"

namespace cohort::fuzz {

#define DECLARE_FUZZ_TARGET(name) void fuzz_##name(std::string_view bytes);
COHORT_FUZZ_TARGETS(DECLARE_FUZZ_TARGET)

namespace {

namespace fs = std::filesystem;

struct CorpusOf {
  const char* name;
  void (*run)(std::string_view bytes);
};
void PrintTo(const CorpusOf& corpus, std::ostream* out) { *out << corpus.name; }

#define CORPUS_OF_TARGET(name) CorpusOf{#name, fuzz_##name},
const CorpusOf kCorpora[] = {COHORT_FUZZ_TARGETS(CORPUS_OF_TARGET)};

fs::path corpus_folder() {
  return fs::path(std::getenv("COHORT_SOURCE")) / "tests/fuzz/corpus";
}

class Corpus : public testing::TestWithParam<CorpusOf> {};

TEST_P(Corpus, EndsWithAValueOrADocumentedError) {
  const auto folder = corpus_folder() / GetParam().name;
  ASSERT_TRUE(fs::is_directory(folder)) << folder;
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().string());
    const std::string whole = read_file(entry.path());
    EXPECT_NO_THROW(GetParam().run(whole));
    // Cut and altered as well: a reader trusts no byte of it.
    const size_t stride = std::max<size_t>(1, whole.size() / 40);
    for (size_t at = 0; at < whole.size(); at += stride) {
      EXPECT_NO_THROW(GetParam().run(whole.substr(0, at))) << "cut at " << at;
      std::string altered = whole;
      altered[at] = static_cast<char>(altered[at] ^ 0x81);
      EXPECT_NO_THROW(GetParam().run(altered)) << "altered at " << at;
    }
    ++files;
  }
  EXPECT_GT(files, 2) << folder;
}

INSTANTIATE_TEST_SUITE_P(EveryReader, Corpus, testing::ValuesIn(kCorpora),
                         [](const auto& info) { return info.param.name; });

TEST(Corpora, AreSmallAndEachHasATarget) {
  uintmax_t bytes = 0;
  for (const auto& folder : fs::directory_iterator(corpus_folder())) {
    const auto name = folder.path().filename().string();
    EXPECT_TRUE(std::any_of(std::begin(kCorpora), std::end(kCorpora),
                            [&](const auto& corpus) { return corpus.name == name; }))
        << name;
    for (const auto& file : fs::directory_iterator(folder)) bytes += file.file_size();
  }
  EXPECT_LT(bytes, 300'000u);
}

}  // namespace
}  // namespace cohort::fuzz
