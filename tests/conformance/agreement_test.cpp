// SPDX-License-Identifier: Apache-2.0
// The same calls, drawn by chance, through every backend: all must give the same.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>

#include "cohort/communicator.h"
#include "cohort/core/error.h"
#include "cohort/core/hash.h"
#include "conformance/inputs.h"
#include "support/ranks.h"
#include "support/shared_store.h"

namespace cohort {
namespace {

constexpr int kDrawnCalls = 60;  // a result each, of 16 letters: they fit a value
constexpr unsigned kDraws = 3;
constexpr std::chrono::seconds kSoon{5};  // it was set before its rank ended

const std::vector<at::ScalarType> kDrawnTypes = {
    at::kBool, at::kChar,  at::kByte,     at::kInt,   at::kLong,
    at::kHalf, at::kFloat, at::kBFloat16, at::kDouble};
const std::vector<std::string> kDrawnOps = {"all_reduce", "reduce_scatter",
                                            "all_gather", "broadcast",
                                            "all_to_all", "exchange"};
enum class Values { kSmall, kHuge, kInfinite, kNaN };
enum class Form { kPlain, kTurned, kStrided, kScalar };

// One call as all ranks make it. Drawn without a kernel: the test program itself
// never runs one.
struct DrawnCall {
  std::string op;
  at::ScalarType dtype;
  ReduceOp reduce;
  int64_t part;  // elements for a rank
  Values values;
  Form form;
  test::Where where;
  int root;
  unsigned seed;

  std::string describe() const {
    return text(op, " ", c10::toString(dtype), " reduction ", static_cast<int>(reduce),
                " part ", part, " values ", static_cast<int>(values), " form ",
                static_cast<int>(form), " where ", static_cast<int>(where), " root ",
                root);
  }
};

std::vector<DrawnCall> draw_calls(unsigned seed, int size) {
  std::mt19937 chance(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(chance() % n); };
  const int64_t parts[] = {0, 1, 2, 700, 3001, 40'001};
  std::vector<DrawnCall> calls;
  for (int i = 0; i < kDrawnCalls; ++i) {
    DrawnCall call{.op = kDrawnOps[below(kDrawnOps.size())],
                   .dtype = kDrawnTypes[below(kDrawnTypes.size())],
                   .reduce = static_cast<ReduceOp>(below(4)),
                   .part = parts[below(std::size(parts))],
                   .values = static_cast<Values>(below(4)),
                   .form = static_cast<Form>(below(4)),
                   .where = test::kEverywhere[below(3)],
                   .root = static_cast<int>(below(static_cast<size_t>(size))),
                   .seed = static_cast<unsigned>(chance())};
    if (call.form == Form::kScalar) call.part = 1;
    calls.push_back(call);
  }
  return calls;
}

// Numbers whose sum does not depend on the order of adding, but for its rounding to
// the type; huge ones have one sign.
Tensor draw_values(const DrawnCall& call, int rank, int64_t numel) {
  const auto period = at::arange(601, at::kLong).mul(37);
  const auto numbers = period.add(rank * 91 + call.seed % 1000).remainder(601);
  auto x = test::repeated(numbers.to(at::kDouble), numel);
  if (!at::isFloatingType(call.dtype)) {
    if (call.values == Values::kHuge)
      x.add_(2e9).mul_(call.dtype == at::kLong ? 1e9 : 1);
    return x.to(at::kLong).to(call.dtype);
  }
  x.sub_(300);
  const auto fifths = at::arange(5, at::kLong).add(rank + call.seed % 7).remainder(5);
  const auto odd = test::repeated(fifths.eq(0), numel);
  const double most = call.dtype == at::kHalf     ? 60'000
                      : call.dtype == at::kDouble ? 1.7e308
                                                  : 3.3e38;
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (call.values == Values::kHuge) x.fill_(most);
  if (call.values == Values::kInfinite) x.masked_fill_(odd, call.seed % 2 ? inf : -inf);
  if (call.values == Values::kNaN) x.masked_fill_(odd, nan);
  return x.to(call.dtype);
}

// `values` as a tensor of the drawn form; its elements in their order are the same.
Tensor shape_values(Communicator& comm, const DrawnCall& call, const Tensor& values) {
  const int64_t numel = values.numel();
  if (call.form == Form::kScalar && numel == 1)
    return test::in_memory(comm, values.view({}), call.where);
  if (call.form == Form::kTurned && numel % comm.size() == 0) {
    const auto matrix = values.view({comm.size(), numel / comm.size()});
    return test::in_memory(comm, matrix.t().contiguous(), call.where).t();
  }
  if (call.form == Form::kStrided) {
    auto pairs =
        test::in_memory(comm, at::zeros({numel, 2}, values.options()), call.where);
    pairs.select(1, 1).copy_(values);
    return pairs.select(1, 1);
  }
  return test::in_memory(comm, values, call.where);
}

// Makes the call and returns what it wrote.
Tensor make_call(Communicator& comm, const DrawnCall& call) {
  const int n = comm.size(), me = comm.rank();
  const auto mine = [&](int64_t numel) {
    return shape_values(comm, call, draw_values(call, me, numel));
  };
  if (call.op == "all_reduce" || call.op == "broadcast") {
    auto x = mine(call.part);
    (call.op == "broadcast" ? comm.broadcast(x, call.root)
                            : comm.all_reduce(x, call.reduce))
        .wait();
    return x;
  }
  if (call.op == "reduce_scatter") {
    auto out = mine(call.part);
    comm.reduce_scatter(out, mine(call.part * n), call.reduce).wait();
    return out;
  }
  if (call.op == "exchange") {
    auto got = mine(call.part);
    const Transfer send[] = {{(me + 1) % n, mine(call.part)}};
    const Transfer receive[] = {{(me + n - 1) % n, got}};
    comm.exchange(send, receive).wait();
    return got;
  }
  auto out = mine(call.part * n);
  if (call.op == "all_gather") comm.all_gather(out, mine(call.part)).wait();
  if (call.op == "all_to_all") comm.all_to_all(out, mine(call.part * n)).wait();
  return out;
}

// Equal for equal values: every NaN is one, and so are both zeros.
uint64_t hash_values(const Tensor& tensor) {
  auto x = tensor.contiguous().view({-1});
  if (at::isFloatingType(x.scalar_type())) {
    x = x.to(at::kDouble);
    x = at::where(x.isnan(), at::full_like(x, 1234.5678), x + 0.0);
  }
  return hash64({static_cast<const char*>(x.const_data_ptr()), x.nbytes()});
}

std::string try_call(Communicator& comm, const DrawnCall& call) {
  try {
    return hex16(hash_values(make_call(comm, call)));
  } catch (const ConfigError&) {
    return "refused.........";
  } catch (const std::exception& error) {
    ADD_FAILURE() << call.describe() << ": " << error.what();
    return "failed..........";
  }
}

class AgreementTest : public testing::TestWithParam<int> {};

TEST_P(AgreementTest, EveryBackendGivesTheSame) {
  for (unsigned draw = 0; draw < kDraws; ++draw) {
    const auto calls = draw_calls(draw, GetParam());
    std::map<std::string, std::vector<std::string>> results;  // by world, then rank
    for (const auto& world : test::every_world({GetParam()})) {
      test::SharedStore store;
      test::run_ranks(world, [&](Communicator& comm) {
        std::string all;
        for (const auto& call : calls) all += try_call(comm, call);
        store.set(std::to_string(comm.rank()), all);
      });
      for (int r = 0; r < GetParam(); ++r)
        results[text(world)].push_back(store.get(std::to_string(r), kSoon));
    }
    const auto& [first, expected] = *results.begin();
    for (const auto& [world, got] : results) {
      for (int r = 0; r < GetParam(); ++r) {
        for (size_t i = 0; i < calls.size(); ++i)
          EXPECT_EQ(got[r].substr(16 * i, 16), expected[r].substr(16 * i, 16))
              << world << " against " << first << " on rank " << r << ", draw " << draw
              << ": " << calls[i].describe();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, AgreementTest, testing::Values(1, 2, 3, 5));

}  // namespace
}  // namespace cohort
