// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/patient_file.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/core/format.h"

namespace cohort {

bool is_full_disk(int code) {
  return code == ENOSPC || code == EDQUOT || code == EFBIG;
}

std::string Backlog::trouble() const {
  if (waiting_.empty()) return "";
  return text("[core.file] cannot write ", *waiting_.begin(),
              waiting_.size() > 1 ? text(" and ", waiting_.size() - 1, " more") : "",
              ": ", cause_);
}

void Backlog::begin(const std::string& path, int code) {
  miss(path, std::generic_category().message(code));
}

void Backlog::miss(const std::string& path, const std::string& why) {
  const bool first = waiting_.empty();
  cause_ = why;
  waiting_.insert(path);
  if (first)
    tell_(trouble() +
          "; the run goes on, and writes what it keeps in memory once "
          "there is room");
}

void Backlog::end(const std::string& path) {
  if (waiting_.erase(path) == 0 || !waiting_.empty()) return;
  tell_(text("[core.file] there is room again: what was kept is written, ",
             lost_ > 0 ? text(lost_, " records are lost") : "nothing is lost"));
  lost_ = 0;
}

void Backlog::lose(const std::string& path) {
  if (lost_++ > 0) return;
  tell_(text("[core.file] ", path, ": more than ",
             format_bytes(static_cast<double>(limit_bytes_)),
             " are kept, so records are lost from now on"));
}

PatientFile::PatientFile(UniqueFd file, std::string path, Backlog* backlog)
    : file_(std::move(file)), path_(std::move(path)), backlog_(backlog) {}

void PatientFile::append(std::string_view bytes) {
  kept_ += bytes;
  write_kept();
}

bool PatientFile::has_room() {
  if (!backlog_ || static_cast<int64_t>(kept_.size()) <= backlog_->limit_bytes())
    return true;
  write_kept();
  if (kept_.empty()) return true;
  backlog_->lose(path_);
  return false;
}

void PatientFile::write_kept() {
  size_t done = 0;
  while (done < kept_.size()) {
    const ssize_t n = ::write(file_.get(), kept_.data() + done, kept_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int code = errno;
      kept_.erase(0, done);
      if (backlog_ && is_full_disk(code)) return backlog_->begin(path_, code);
      throw DataError(text("[core.file] cannot write ", path_, ": ",
                           std::generic_category().message(code)));
    }
    done += static_cast<size_t>(n);
  }
  kept_.clear();
  if (backlog_) backlog_->end(path_);
}

}  // namespace cohort
