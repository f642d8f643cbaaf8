// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/rdzv_token.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include <array>
#include <cstdlib>
#include <iomanip>

#include "cohort/core/error.h"
#include "cohort/core/unique_fd.h"

namespace cohort::process {
namespace {

constexpr size_t kLeastToken = 16;  // bytes
constexpr size_t kMostToken = 4096;
constexpr const char* kHowToMakeToken =
    "umask 077; head -c 32 /dev/urandom | base64 > FILE";

std::string trimmed_token(const std::string& value) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t first = value.find_first_not_of(kSpace);
  if (first == std::string::npos) return {};
  return value.substr(first, value.find_last_not_of(kSpace) - first + 1);
}

std::string checked_token(const std::string& where, const std::string& secret) {
  if (secret.size() >= kLeastToken && secret.size() <= kMostToken) return secret;
  throw ConfigError(text("[launch.rdzv] the token in ", where, " has ", secret.size(),
                         " bytes; legal: ", kLeastToken, " to ", kMostToken, " (",
                         kHowToMakeToken, ")"));
}

std::string octal_mode(mode_t mode) {
  std::ostringstream out;
  out << std::oct << std::setw(4) << std::setfill('0') << (mode & 07777);
  return out.str();
}

}  // namespace

std::string read_rdzv_token(const std::string& file) {
  if (file.empty()) {
    const char* value = std::getenv(kRdzvTokenVariable);
    if (value == nullptr || *value == '\0') return {};
    return checked_token(kRdzvTokenVariable, trimmed_token(value));
  }
  const auto refuse = [&](auto&&... what) {
    throw ConfigError(text("[launch.rdzv] --rdzv-token ", file, ": ", what...));
  };
  // A pipe must not hold us up.
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) {
    refuse(strerror(errno), "; legal: a file that this user alone can read (",
           kHowToMakeToken, ")");
  }
  if (!S_ISREG(info.st_mode)) refuse("no regular file; legal: ", kHowToMakeToken);
  if (info.st_uid != ::geteuid()) {
    refuse("belongs to user ", info.st_uid, "; legal: a file of user ", ::geteuid());
  }
  if ((info.st_mode & 077) != 0) {
    refuse("mode ", octal_mode(info.st_mode),
           " lets others at it; legal: 0400 or 0600 (chmod 600)");
  }
  std::array<char, kMostToken + 64> buffer;
  const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
  if (got < 0) refuse(strerror(errno), "; legal: a file that can be read");
  return checked_token(
      file, trimmed_token(std::string(buffer.data(), static_cast<size_t>(got))));
}

}  // namespace cohort::process
