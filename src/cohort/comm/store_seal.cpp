// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/store_seal.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <memory>
#include <string_view>

#include "cohort/core/error.h"

namespace cohort {
namespace {

constexpr size_t kNonceBytes = 12;
constexpr size_t kTagBytes = 16;
constexpr size_t kNameBytes = 16;

using Digest = std::array<unsigned char, 32>;
using CipherContext = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

unsigned char* bytes_of(std::string& text) {
  return reinterpret_cast<unsigned char*>(text.data());
}

Digest keyed_digest(std::string_view key, std::string_view text) {
  Digest digest{};
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes_of(text),
       text.size(), digest.data(), &size);
  COHORT_CHECK(size == digest.size(), "OpenSSL has no SHA-256");
  return digest;
}

std::string_view view_of(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

StoreSeal::StoreSeal(const std::string& secret)
    : on_(!secret.empty()),
      names_(keyed_digest(secret, "cohort store names 1")),
      values_(keyed_digest(secret, "cohort store values 1")) {}

std::string StoreSeal::name(const std::string& key) const {
  if (!on_) return key;
  static constexpr char kHex[] = "0123456789abcdef";
  const Digest digest = keyed_digest(view_of(names_), key);
  std::string name = "cohort/";
  for (size_t i = 0; i < kNameBytes; ++i) {
    name += kHex[digest[i] >> 4];
    name += kHex[digest[i] & 15];
  }
  return name;
}

std::string StoreSeal::close(const std::string& key, const std::string& value) const {
  if (!on_) return value;
  std::string sealed(kNonceBytes + value.size() + kTagBytes, '\0');
  unsigned char* nonce = bytes_of(sealed);
  const CipherContext context(EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
  EVP_CIPHER_CTX* c = context.get();
  int size = 0;
  const bool good =
      RAND_bytes(nonce, kNonceBytes) == 1 &&
      EVP_EncryptInit_ex(c, EVP_aes_256_gcm(), nullptr, values_.data(), nonce) == 1 &&
      EVP_EncryptUpdate(c, nullptr, &size, bytes_of(std::string_view(key)),
                        static_cast<int>(key.size())) == 1 &&
      EVP_EncryptUpdate(c, nonce + kNonceBytes, &size,
                        bytes_of(std::string_view(value)),
                        static_cast<int>(value.size())) == 1 &&
      EVP_EncryptFinal_ex(c, nonce + kNonceBytes + value.size(), &size) == 1 &&
      EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, kTagBytes,
                          nonce + kNonceBytes + value.size()) == 1;
  COHORT_CHECK(good, "OpenSSL could not seal a value");
  return sealed;
}

std::string StoreSeal::open(const std::string& key, const std::string& sealed) const {
  if (!on_) return sealed;
  const auto refuse = [&] {
    throw CommError(text("[comm.store] get '", key,
                         "': its value was not written by a rank of this run"));
  };
  if (sealed.size() < kNonceBytes + kTagBytes) refuse();
  std::string copy = sealed;  // the tag is taken from memory that may be written to
  std::string value(sealed.size() - kNonceBytes - kTagBytes, '\0');
  const unsigned char* nonce = bytes_of(copy);
  const CipherContext context(EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
  EVP_CIPHER_CTX* c = context.get();
  int size = 0;
  const bool good =
      EVP_DecryptInit_ex(c, EVP_aes_256_gcm(), nullptr, values_.data(), nonce) == 1 &&
      EVP_DecryptUpdate(c, nullptr, &size, bytes_of(std::string_view(key)),
                        static_cast<int>(key.size())) == 1 &&
      EVP_DecryptUpdate(c, bytes_of(value), &size, nonce + kNonceBytes,
                        static_cast<int>(value.size())) == 1 &&
      EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, kTagBytes,
                          bytes_of(copy) + kNonceBytes + value.size()) == 1 &&
      EVP_DecryptFinal_ex(c, bytes_of(value) + value.size(), &size) == 1;
  if (!good) refuse();
  return value;
}

}  // namespace cohort
