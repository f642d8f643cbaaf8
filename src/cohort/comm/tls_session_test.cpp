// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/tls_session.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>

namespace cohort {
namespace {

const std::string kSecretA(32, 'a');
const std::string kSecretB(32, 'b');

struct TlsPair {
  explicit TlsPair(const std::string& of_server, const std::string& of_client)
      : server_key(of_server, TlsKey::Side::kServer),
        client_key(of_client, TlsKey::Side::kClient),
        server(server_key),
        client(client_key) {}

  // Carries bytes to and fro until nobody has any; keeps what the client said.
  void talk() {
    for (;;) {
      const std::string there = client.take_wire();
      const std::string back = server.take_wire();
      if (there.empty() && back.empty()) return;
      said += there;
      if (!there.empty()) server.receive(there);
      if (!back.empty()) client.receive(back);
    }
  }

  TlsKey server_key, client_key;
  TlsSession server, client;
  std::string said;
};

TEST(TlsSession, SidesWithOneSecretHearEachOther) {
  TlsPair pair(kSecretA, kSecretA);
  pair.talk();
  ASSERT_TRUE(pair.server.established());
  ASSERT_TRUE(pair.client.established());
  pair.client.send("question");
  pair.talk();
  EXPECT_EQ(pair.server.take_plain(), "question");
  pair.server.send("answer");
  pair.talk();
  EXPECT_EQ(pair.client.take_plain(), "answer");
}

TEST(TlsSession, BothSidesSeeThatTheSecretsDiffer) {
  TlsPair pair(kSecretA, kSecretB);
  pair.talk();
  EXPECT_FALSE(pair.server.established());
  EXPECT_FALSE(pair.client.established());
  EXPECT_TRUE(pair.server.other_secret());
  EXPECT_TRUE(pair.client.other_secret());
}

TEST(TlsSession, TheWireShowsNeitherSecretNorText) {
  TlsPair pair(kSecretA, kSecretA);
  pair.talk();
  pair.client.send("question");
  pair.talk();
  EXPECT_EQ(pair.said.find("question"), std::string::npos);
  EXPECT_EQ(pair.said.find(kSecretA.substr(0, 8)), std::string::npos);
}

// Whoever recorded a whole join gets no further than the greeting with it.
TEST(TlsSession, ARecordedConversationOpensNoOther) {
  TlsPair recorded(kSecretA, kSecretA);
  recorded.talk();
  recorded.client.send("question");
  recorded.talk();
  TlsSession server(recorded.server_key);
  EXPECT_FALSE(server.receive(recorded.said));
  EXPECT_FALSE(server.established());
  EXPECT_EQ(server.take_plain(), "");
}

TEST(TlsSession, AlteredBytesEndTheSession) {
  TlsPair pair(kSecretA, kSecretA);
  pair.talk();
  pair.client.send("question");
  std::string wire = pair.client.take_wire();
  wire.back() ^= 1;
  EXPECT_FALSE(pair.server.receive(wire));
  EXPECT_EQ(pair.server.take_plain(), "");
}

TEST(TlsSession, TheSameRecordTwiceEndsTheSession) {
  TlsPair pair(kSecretA, kSecretA);
  pair.talk();
  pair.client.send("question");
  const std::string wire = pair.client.take_wire();
  EXPECT_TRUE(pair.server.receive(wire));
  EXPECT_FALSE(pair.server.receive(wire));
  EXPECT_EQ(pair.server.take_plain(), "question");
}

TEST(TlsSession, GarbageIsNoAgentWithAnotherSecret) {
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(70'000, '\xff'),
        std::string("\x16\x03\x01\xff\xff", 5) + std::string(70'000, '\0')}) {
    TlsKey key(kSecretA, TlsKey::Side::kServer);
    TlsSession server(key);
    EXPECT_FALSE(server.receive(garbage));
    EXPECT_FALSE(server.other_secret());
  }
}

using OwnedContext = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

// A server that has no key but a certificate it made itself.
OwnedContext certified_server() {
  OwnedContext context(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_sign(certificate, key, EVP_sha256());
  SSL_CTX_use_certificate(context.get(), certificate);
  SSL_CTX_use_PrivateKey(context.get(), key);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return context;
}

// Who took the port before the host did may well have a certificate; it has no secret.
TEST(TlsSession, ACertificateProvesNothing) {
  const OwnedContext context = certified_server();
  SSL* server = SSL_new(context.get());
  BIO* in = BIO_new(BIO_s_mem());
  BIO* out = BIO_new(BIO_s_mem());
  SSL_set_bio(server, in, out);
  SSL_set_accept_state(server);
  TlsKey key(kSecretA, TlsKey::Side::kClient);
  TlsSession client(key);
  const std::string hello = client.take_wire();
  BIO_write(in, hello.data(), static_cast<int>(hello.size()));
  SSL_do_handshake(server);
  std::string answer(BIO_ctrl_pending(out), '\0');
  ASSERT_GT(answer.size(), 500u) << "no certificate came";
  BIO_read(out, answer.data(), static_cast<int>(answer.size()));
  EXPECT_FALSE(client.receive(answer));
  EXPECT_FALSE(client.established());
  SSL_free(server);
}

}  // namespace
}  // namespace cohort
