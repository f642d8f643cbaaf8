// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>

namespace cohort {

// What a run puts into a store that anyone who connects may list, read and write
// (c10d::TCPStore): names that tell nothing, and values that can neither be read nor
// forged without the run's token. Counters stay as they are.
//
// AES-256-GCM with random nonces, bound to the key; names are HMAC-SHA256. Both keys
// come from the secret, which is never stored. Thread safety: full.
class StoreSeal {
 public:
  // Without a secret names and values stay as they are.
  explicit StoreSeal(const std::string& secret);

  std::string name(const std::string& key) const;
  std::string close(const std::string& key, const std::string& value) const;
  // CommError, naming the key, for a value that no rank of this run has written there.
  std::string open(const std::string& key, const std::string& sealed) const;

 private:
  using Key = std::array<unsigned char, 32>;
  bool on_ = false;
  Key names_{}, values_{};
};

}  // namespace cohort
