// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/text_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/hash.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrintBible = "bible -f gen1:1-rev22:21 2>/dev/null";

[[noreturn]] void fail_text(const std::string& what) {
  throw DataError("[data.text] " + what);
}

bool is_text_name(const fs::path& path) {
  return path.extension() == ".txt" || path.extension() == ".md";
}

std::vector<fs::path> text_files_below(const std::string& folder) {
  std::vector<fs::path> found;
  std::error_code trouble;
  constexpr auto kOptions = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator at(folder, kOptions, trouble), end;
       !trouble && at != end; at.increment(trouble)) {
    std::error_code ignored;
    if (is_text_name(at->path()) && at->is_regular_file(ignored))
      found.push_back(at->path());
  }
  if (trouble) fail_text(text(folder, ": ", trouble.message()));
  std::ranges::sort(found);
  return found;
}

bool has_bytes(const fs::path& path) {
  std::error_code trouble;
  return fs::file_size(path, trouble) > 0 && !trouble;
}

int64_t count_lines(std::string_view text) {
  const int64_t ends = std::ranges::count(text, '\n');
  return ends + (!text.empty() && text.back() != '\n' ? 1 : 0);
}

int64_t count_lines(const TextFiles& text) {
  int64_t lines = 0;
  for (const auto& file : text.files) lines += count_lines(read_file(file));
  return lines;
}

// Cut behind that many lines.
TextParts cut_behind(std::string_view text, int64_t lines) {
  size_t at = 0;
  for (; lines > 0 && at < text.size(); --lines)
    at = std::min(text.find('\n', at), text.size() - 1) + 1;
  return {text.substr(0, at), text.substr(at)};
}

// What a program prints; empty if it fails or is not there.
std::string output_of(const char* command) {
  std::string out;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command, "re"),
                                                       ::pclose);
  if (!pipe) return out;
  char part[1 << 16];
  for (size_t count; (count = std::fread(part, 1, sizeof part, pipe.get())) > 0;)
    out.append(part, count);
  return ::pclose(pipe.release()) == 0 ? out : "";
}

// Each line without its first word, which says book, chapter and verse.
std::string without_places(std::string_view verses) {
  std::string out;
  out.reserve(verses.size());
  while (!verses.empty()) {
    const size_t end = std::min(verses.find('\n'), verses.size() - 1) + 1;
    const std::string_view line = verses.substr(0, end);
    out += line.substr(std::min(line.find(' '), line.size() - 1) + 1);
    verses.remove_prefix(end);
  }
  return out;
}

}  // namespace

uint64_t TextFiles::fingerprint() const {
  Hasher hasher;
  for (const auto& file : files) {
    struct stat found {};
    if (::stat(file.c_str(), &found) != 0) fail_text(text(file.string(), ": is gone"));
    hasher.add(file.string()).add(int64_t{found.st_size});
    hasher.add(int64_t{found.st_mtim.tv_sec}).add(int64_t{found.st_mtim.tv_nsec});
  }
  return hasher.digest();
}

TextFiles find_text(const std::string& path) {
  std::error_code ignored;
  const fs::path whole = fs::absolute(path).lexically_normal();
  TextFiles found{.name = path, .files = {whole}};
  if (!fs::exists(whole, ignored)) fail_text(text("data.dir=", path, ": is not there"));
  if (fs::is_directory(whole, ignored)) found.files = text_files_below(whole.string());
  std::erase_if(found.files, [](const fs::path& file) { return !has_bytes(file); });
  if (found.files.empty())
    fail_text(
        text("data.dir=", path,
             ": no text there; expected *.txt or *.md files "
             "that are not empty, in it or in folders below, or one file of text; "
             "files of tokens need data.tokenizer=none"));
  return found;
}

TextFiles bible_text(const fs::path& cache) {
  const fs::path kept = cache / "bible-kjv.txt";
  if (!has_bytes(kept)) {
    const std::string verses = without_places(output_of(kPrintBible));
    if (verses.empty())
      fail_text(
          "the program `bible` is not there, or prints nothing; legal: install "
          "Debian's package bible-kjv, set data.dir to a folder or a file of text, or "
          "data.synthetic=true");
    make_folder(cache);
    write_file_atomically(kept, verses);
  }
  return {.name = "bible-kjv", .files = {kept}};
}

void for_each_document(const TextFiles& text,
                       const std::function<void(const TextParts& parts)>& use) {
  const int64_t lines = count_lines(text);
  if (lines < 2)
    fail_text(cohort::text(text.name, ": has ", lines, " lines; expected 2 or more, ",
                           "of which the last tenth is for validation"));
  int64_t train = lines - std::max<int64_t>(1, lines / 10);
  for (const auto& file : text.files) {
    const std::string document = read_file(file);
    use(cut_behind(document, train));
    train = std::max<int64_t>(0, train - count_lines(document));
  }
}

}  // namespace cohort
