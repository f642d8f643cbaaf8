// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/message.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <array>

namespace cohort {

int try_send_message(int socket, const void* head, size_t head_size,
                     std::string_view text, std::span<const int> fds) {
  iovec parts[2] = {{const_cast<void*>(head), head_size},
                    {const_cast<char*>(text.data()), text.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = text.empty() ? 1 : 2;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMostDescriptors)>
      control{};
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * fds.size());
  }
  ssize_t n;
  do {
    n = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
  return n >= 0 ? 1 : -1;
}

bool send_message(int socket, const void* head, size_t head_size, std::string_view text,
                  std::span<const int> fds) {
  int sent;
  while ((sent = try_send_message(socket, head, head_size, text, fds)) == 0) {
    pollfd room{socket, POLLOUT, 0};
    ::poll(&room, 1, 1'000);
  }
  return sent > 0;
}

int receive_message(int socket, void* head, size_t head_size, std::string& text,
                    std::vector<UniqueFd>& fds) {
  text.resize(kLongestText);
  iovec parts[2] = {{head, head_size}, {text.data(), text.size()}};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMostDescriptors)>
      control{};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t n;
  do {
    n = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
  if (n < static_cast<ssize_t>(head_size)) return -1;
  text.resize(n - head_size);
  fds.clear();
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? -1 : 1;
}

}  // namespace cohort
