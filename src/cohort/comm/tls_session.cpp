// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/tls_session.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>

#include <array>
#include <cstring>
#include <utility>

#include "cohort/core/error.h"

namespace cohort {
namespace {

// The name of the key; it changes with the language that is spoken over it.
constexpr char kIdentity[] = "cohort-meeting-1";
constexpr int kMostPlain = 16'384;  // most plain bytes of one TLS record

using PresharedKey = std::array<unsigned char, 32>;

const PresharedKey& key_of(SSL* ssl) {
  return *static_cast<const PresharedKey*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
}

unsigned give_key(SSL* ssl, unsigned char* key, unsigned most) {
  const PresharedKey& mine = key_of(ssl);
  if (most < mine.size()) return 0;
  std::memcpy(key, mine.data(), mine.size());
  return mine.size();
}

unsigned on_client(SSL* ssl, const char*, char* identity, unsigned most_identity,
                   unsigned char* key, unsigned most) {
  if (most_identity < sizeof(kIdentity)) return 0;
  std::memcpy(identity, kIdentity, sizeof(kIdentity));
  return give_key(ssl, key, most);
}

unsigned on_server(SSL* ssl, const char* identity, unsigned char* key, unsigned most) {
  if (identity == nullptr || std::strcmp(identity, kIdentity) != 0) return 0;
  return give_key(ssl, key, most);
}

// Whether the errors of the last call say that the two sides have different secrets.
bool take_errors() {
  bool other = false;
  while (const unsigned long error = ERR_get_error()) {
    const int reason = ERR_GET_REASON(error);
    other |= reason == SSL_R_BINDER_DOES_NOT_VERIFY ||         // what a server finds
             reason == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER ||  // and says to a client
             reason == SSL_R_TLSV1_ALERT_DECRYPT_ERROR;
  }
  return other;
}

}  // namespace

struct TlsKey::Impl {
  ~Impl() { OPENSSL_cleanse(key.data(), key.size()); }

  PresharedKey key{};
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context{nullptr, &SSL_CTX_free};
  Side side = Side::kClient;
};

TlsKey::TlsKey(const std::string& secret, Side side) : impl_(std::make_unique<Impl>()) {
  impl_->side = side;
  unsigned size = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(kIdentity), sizeof(kIdentity) - 1,
       impl_->key.data(), &size);
  const bool server = side == Side::kServer;
  SSL_CTX* context = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
  impl_->context.reset(context);
  // A suite with SHA-256, the hash of keys that come from outside. Without certificates
  // and authorities nobody is let in but by the key. The exchange of fresh keys stays
  // on, so that a secret which leaks later opens no recording.
  COHORT_CHECK(size == impl_->key.size() && context != nullptr &&
                   SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                   SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1 &&
                   SSL_CTX_set_num_tickets(context, 0) == 1,
               "OpenSSL has no TLS 1.3");
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_app_data(context, &impl_->key);
  if (server) {
    SSL_CTX_set_psk_server_callback(context, on_server);
  } else {
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_psk_client_callback(context, on_client);
  }
}

TlsKey::~TlsKey() = default;

struct TlsSession::Impl {
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl{nullptr, &SSL_free};
  BIO* in = nullptr;  // both are the session's
  BIO* out = nullptr;
  std::string plain;
  bool established = false;
  bool broken = false;
  bool other_secret = false;
};

TlsSession::TlsSession(const TlsKey& key) : impl_(std::make_unique<Impl>()) {
  impl_->ssl.reset(SSL_new(key.impl_->context.get()));
  impl_->in = BIO_new(BIO_s_mem());
  impl_->out = BIO_new(BIO_s_mem());
  COHORT_CHECK(impl_->ssl && impl_->in && impl_->out, "OpenSSL has no memory");
  SSL* ssl = impl_->ssl.get();
  SSL_set_bio(ssl, impl_->in, impl_->out);
  if (key.impl_->side == TlsKey::Side::kServer) {
    SSL_set_accept_state(ssl);
  } else {
    SSL_set_connect_state(ssl);
    greet();
  }
}

TlsSession::~TlsSession() = default;

bool TlsSession::established() const { return impl_->established; }
bool TlsSession::other_secret() const { return impl_->other_secret; }

bool TlsSession::greet() {
  SSL* ssl = impl_->ssl.get();
  ERR_clear_error();
  const int done = SSL_do_handshake(ssl);
  if (done == 1) {
    // By the key, and by nothing else.
    impl_->established = SSL_session_reused(ssl) == 1;
    impl_->broken = !impl_->established;
  } else if (SSL_get_error(ssl, done) != SSL_ERROR_WANT_READ) {
    impl_->broken = true;
    impl_->other_secret = take_errors();
  }
  return !impl_->broken;
}

bool TlsSession::read() {
  std::array<char, kMostPlain> buffer;
  for (;;) {
    ERR_clear_error();
    SSL* ssl = impl_->ssl.get();
    const int got = SSL_read(ssl, buffer.data(), buffer.size());
    if (got > 0) {
      impl_->plain.append(buffer.data(), got);
      continue;
    }
    impl_->broken = SSL_get_error(ssl, got) != SSL_ERROR_WANT_READ;
    return !impl_->broken;
  }
}

bool TlsSession::receive(std::string_view wire) {
  if (impl_->broken) return false;
  BIO_write(impl_->in, wire.data(), static_cast<int>(wire.size()));
  if (!impl_->established && !greet()) return false;
  return !impl_->established || read();
}

void TlsSession::send(std::string_view plain) {
  COHORT_CHECK(impl_->established, "nobody has proved anything yet");
  if (impl_->broken || plain.empty()) return;
  SSL_write(impl_->ssl.get(), plain.data(), static_cast<int>(plain.size()));
}

std::string TlsSession::take_plain() { return std::exchange(impl_->plain, {}); }

std::string TlsSession::take_wire() {
  std::string wire(BIO_ctrl_pending(impl_->out), '\0');
  if (!wire.empty()) BIO_read(impl_->out, wire.data(), static_cast<int>(wire.size()));
  return wire;
}

}  // namespace cohort
