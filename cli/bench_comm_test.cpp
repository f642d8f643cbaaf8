// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_comm.h"

#include <gtest/gtest.h>

#include <set>

#include "cohort/comm/local/local.h"
#include "cohort/core/error.h"

namespace cohort::cli {
namespace {

TEST(BenchCommTest, RefusesWhatItCannotMeasure) {
  BenchCommArgs args;
  args.ops = {"all_redcue"};
  try {
    check_bench_comm(args);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("all_reduce"), std::string::npos);
  }
  args.ops = {"all_reduce"};
  args.bytes = {0};
  EXPECT_THROW(check_bench_comm(args), ConfigError);
  args.bytes = {4};
  args.backends = {};
  EXPECT_THROW(check_bench_comm(args), ConfigError);
}

TEST(BenchCommTest, MeasuresEveryOperationAndTheLimit) {
  BenchCommArgs args;
  args.backends = {"local"};
  args.ops = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
              "all_to_all", "exchange",       "barrier"};
  args.bytes = {4'000};
  args.turn_seconds = 1e-5;
  auto comms = make_local(1, std::chrono::seconds(20));
  std::set<std::string> seen;
  measure_comm(
      args, [&](const std::string&) { return std::move(comms[0]); },
      [&](const BenchCommRow& row) {
        EXPECT_GT(row.p50, 0);
        EXPECT_GE(row.p99, row.p50);
        EXPECT_GE(row.mean, row.p50 / 2);  // half of the calls take p50 or more
        EXPECT_EQ(row.ranks, 1);
        seen.insert(row.backend + " " + row.op + " " + row.memory);
      });
  EXPECT_EQ(seen.size(), 2 * 6 + 1 + 1u);  // two memories, barrier once, the limit
  EXPECT_TRUE(seen.contains("limit all_reduce shared"));
}

// A sum everywhere takes 5 us and 1 us for each 1000 bytes that a rank moves; between
// two ranks those are the bytes themselves.
TEST(BenchCommTest, RowsBecomeLinksOfATableOfCosts) {
  const auto row = [](const char* backend, const char* op, int64_t bytes,
                      const char* memory, double p50) {
    return BenchCommRow{backend, op, bytes, 2, memory, p50, p50, p50, 0, 0};
  };
  const std::vector<BenchCommRow> rows = {
      row("shm", "all_reduce", 4000, "shared", 9),
      row("shm", "all_reduce", 4000, "ordinary", 99),
      row("limit", "all_reduce", 4000, "shared", 1),
      row("shm", "all_reduce", 100'000, "shared", 105),
      row("shm", "exchange", 4000, "shared", 6),
      row("shm", "exchange", 100'000, "shared", 102),
      row("shm", "barrier", 0, "ordinary", 1)};
  const CostTable costs = link_costs(rows, "tp", /*hidden=*/false);
  EXPECT_EQ(to_csv(costs),
            "what,name,fixed_us,per_sample_us,gb_per_s,hidden\n"
            "rows,5,,,,\n"
            "link,pp,2,,1,false\n"
            "link,tp,5,,1,false\n"
            "link,tp/AllReduce,5,,1,false\n"
            "link,tp/Mirror,2,,1,false\n"
            "link,tp/Reduce,5,,1,false\n");
  EXPECT_EQ(to_csv(costs_from_csv(to_csv(costs))), to_csv(costs));
}

TEST(BenchCommTest, CostsNeedOneBackendTwoSizesAndAName) {
  BenchCommArgs args{.backends = {"shm"}, .costs_out = "links.csv"};
  check_bench_comm(args);
  args.link = "tp/AllReduce";
  EXPECT_THROW(check_bench_comm(args), ConfigError);
  args.link = "tp";
  args.bytes = {4'000};
  EXPECT_THROW(check_bench_comm(args), ConfigError);
  args.bytes = {4'000, 8'000};
  args.backends = {"shm", "gloo"};
  EXPECT_THROW(check_bench_comm(args), ConfigError);
  args.backends = {"shm"};
  args.ranks = 1;
  EXPECT_THROW(check_bench_comm(args), ConfigError);
}

TEST(BenchCommTest, RatesAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor("all_reduce", 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor("all_gather", 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor("reduce_scatter", 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor("all_to_all", 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor("broadcast", 4), 1);
}

TEST(BenchCommTest, ARowIsOneJsonObject) {
  const BenchCommRow row{"shm", "all_reduce", 4000, 2, "shared", 1.5, 2.5, 1.75, 3, 4};
  EXPECT_EQ(format_row(row, true),
            "{\"backend\":\"shm\",\"op\":\"all_reduce\",\"bytes\":4000,\"ranks\":2,"
            "\"memory\":\"shared\",\"p50\":1.5,\"p99\":2.5,\"mean\":1.75,"
            "\"algbw\":3.0,\"busbw\":4.0}\n");
}

}  // namespace
}  // namespace cohort::cli
