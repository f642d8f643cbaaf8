// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "cohort/step/schedule.h"

namespace cohort::csv {

// The records of a schedule besides its roles, one per line: "#@ bucket
// numel=4096,...".
void write_records(std::ostream& out, const Schedule& schedule);

// Reads one such line into the schedule. What is wrong is said without the line's
// number, as "'x'; legal: ...".
struct RecordError {
  std::string what;
};
void read_record(std::string_view line, Schedule& schedule);

// "Act3/1.2@5=4000": kind, block or bucket, slice, version, buffer, bytes.
std::string access_text(const Access& access);
std::optional<Access> parse_access(std::string_view text);

// "0:AllReduce:4000": group, operation, bytes.
std::string call_text(const InnerCall& call);
std::optional<InnerCall> parse_call(std::string_view text);

}  // namespace cohort::csv
