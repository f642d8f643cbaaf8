// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace cohort {

// The key of a rendezvous, made of the secret that its members share, for one side of
// its connections. Lives as long as its sessions.
class TlsKey {
 public:
  enum class Side { kServer, kClient };
  TlsKey(const std::string& secret, Side side);
  ~TlsKey();
  TlsKey(const TlsKey&) = delete;
  TlsKey& operator=(const TlsKey&) = delete;

 private:
  friend class TlsSession;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One side of a connection that is proved, sealed and fresh: TLS 1.3 with the key as
// its pre-shared key and no certificates. Each side proves that it knows the secret,
// over random numbers of both; the secret itself is never sent, nothing that was
// recorded is of use in another connection, and altered bytes end the session.
//
// It owns no socket: give receive() what came over the wire, and send what take_wire()
// returns, in order. A client's first bytes are there from the start.
//
// Thread safety: one thread at a time.
class TlsSession {
 public:
  explicit TlsSession(const TlsKey& key);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // False once the session is broken: send what take_wire() has, and close.
  bool receive(std::string_view wire);
  // Both sides have proved themselves.
  bool established() const;
  // The other side speaks our language and has another secret (or says that we do).
  bool other_secret() const;

  void send(std::string_view plain);  // once it is established
  std::string take_plain();
  std::string take_wire();

 private:
  struct Impl;
  bool greet();
  bool read();

  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort
