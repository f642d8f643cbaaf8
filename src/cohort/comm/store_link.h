// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "cohort/comm/tls_session.h"
#include "cohort/core/unique_fd.h"

namespace cohort {

// What is asked of a guarded store, and what it answers: one frame each. The layout is
// fixed, unlike that of a record (core/record.h): programs of two versions must
// understand one another here for long enough to learn that they differ.
struct StoreRequest {
  enum Kind : uint8_t {
    kSet = 1,
    kGet,
    kHas,
    kAdd,
    kSetAtEnd,  // when this connection ends
  };
  Kind kind = kHas;
  int64_t number = 0;  // kAdd: how much; kGet: how long to wait, in milliseconds
  std::string key;
  std::string value;
};

struct StoreAnswer {
  int64_t number = 0;  // a counter's value; kGet and kHas: 1 if the key is there
  std::string value;
};

std::string encode(const StoreRequest& request);
std::string encode(const StoreAnswer& answer);
// Nothing for bytes that are none.
std::optional<StoreRequest> decode_request(const std::string& frame);
std::optional<StoreAnswer> decode_answer(const std::string& frame);

// One end of a connection to a guarded store: whole frames over a socket that never
// blocks. What comes before both sides have proved themselves is a handshake or the
// end: no frame is read, and no more is kept than the socket gives at once.
//
// Poll fd() for events(), then pump(). Thread safety: one thread at a time.
class StoreLink {
 public:
  // Without a session the socket itself must be trusted.
  StoreLink(UniqueFd socket, std::unique_ptr<TlsSession> session);

  int fd() const { return socket_.get(); }
  short events() const;
  bool proved() const { return !session_ || session_->established(); }
  bool other_secret() const { return session_ && session_->other_secret(); }

  // Reads what has come, writes what can be written. False: the connection is over.
  bool pump();
  std::optional<std::string> next_frame();
  void send(const std::string& frame);  // once proved

 private:
  bool read();
  bool write();
  bool cut_frames();

  UniqueFd socket_;
  std::unique_ptr<TlsSession> session_;
  std::string in_, out_;
  std::deque<std::string> frames_;
};

}  // namespace cohort
