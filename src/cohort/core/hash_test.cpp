// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/hash.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

// Published values of XXH3-64: the empty input, and `printf abc | xxhsum -H3`.
TEST(Hash, AgreesWithPublishedValues) {
  EXPECT_EQ(hash64(""), 0x2d06800538d394c2u);
  EXPECT_EQ(hash64("abc"), 0x78af5f94892f3950u);
}

TEST(Hash, SeedChangesTheHash) { EXPECT_NE(hash64("abc", 1), hash64("abc")); }

TEST(Hash, StreamDoesNotDependOnTheCuts) {
  std::string bytes;
  for (int i = 0; i < 5000; ++i) bytes += static_cast<char>(i * 31 >> 3);
  for (size_t cut : {size_t{1}, size_t{7}, size_t{64}, size_t{1023}, bytes.size()}) {
    Hasher hasher;
    for (size_t at = 0; at < bytes.size(); at += cut) {
      hasher.update(std::string_view(bytes).substr(at, cut));
    }
    EXPECT_EQ(hasher.digest(), hash64(bytes)) << "cut " << cut;
  }
}

TEST(Hash, SeededStreamEqualsSeededHash) {
  const std::string bytes(1000, 'x');
  EXPECT_EQ(Hasher(9).update(bytes).digest(), hash64(bytes, 9));
}

TEST(Hash, DigestLeavesTheStreamOpen) {
  Hasher hasher;
  hasher.update("ab");
  EXPECT_EQ(hasher.digest(), hash64("ab"));
  hasher.update("c");
  EXPECT_EQ(hasher.digest(), hash64("abc"));
}

TEST(Hash, FieldsKeepTheirBorders) {
  EXPECT_NE(fingerprint("ab", "c"), fingerprint("a", "bc"));
  EXPECT_NE(fingerprint("a", 1), fingerprint("a", 2));
  EXPECT_EQ(fingerprint("a", 1), fingerprint(std::string("a"), int64_t{1}));
}

TEST(Hash, HexHasSixteenDigits) {
  EXPECT_EQ(hex16(0), "0000000000000000");
  EXPECT_EQ(hex16(0xfedcba9876543210u), "fedcba9876543210");
  EXPECT_EQ(hex16(0xabc), "0000000000000abc");
}

}  // namespace
}  // namespace cohort
