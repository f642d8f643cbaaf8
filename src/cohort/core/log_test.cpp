// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/log.h"

#include <gtest/gtest.h>

#include <string>

namespace cohort {
namespace {

class Collect : public LogSink {
 public:
  void write(Level level, std::string_view line) override {
    all.append(level_name(level)).append(":").append(line).append(";");
  }
  std::string all;
};

TEST(Log, EachCallHasItsLevel) {
  Collect sink;
  sink.debug("a");
  sink.info("b");
  sink.warning("c");
  sink.error("d");
  EXPECT_EQ(sink.all, "debug:a;info:b;warning:c;error:d;");
}

TEST(Log, FilterPassesWhatIsGraveEnough) {
  Collect sink;
  FilterSink filter(sink, Level::kWarning);
  filter.debug("a");
  filter.info("b");
  filter.warning("c");
  filter.error("d");
  EXPECT_EQ(sink.all, "warning:c;error:d;");
}

}  // namespace
}  // namespace cohort
