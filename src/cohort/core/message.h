// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/core/unique_fd.h"

// Messages between processes of one machine, over a SOCK_SEQPACKET socket: a fixed
// head, an optional text, optional descriptors; each arrives whole or not at all.
namespace cohort {

inline constexpr size_t kLongestText = 128 * 1024;
inline constexpr size_t kMostDescriptors = 4;

// Does not wait. 1: sent; 0: the other side has to read first; -1: it is gone.
int try_send_message(int socket, const void* head, size_t head_size,
                     std::string_view text = {}, std::span<const int> fds = {});

// Waits until it is sent. False when the other side is gone.
bool send_message(int socket, const void* head, size_t head_size,
                  std::string_view text = {}, std::span<const int> fds = {});

// Does not wait. 1: a message came; 0: none is there; -1: the other side is
// gone, or sent what is no message (too short, too long, too many descriptors).
int receive_message(int socket, void* head, size_t head_size, std::string& text,
                    std::vector<UniqueFd>& fds);

}  // namespace cohort
