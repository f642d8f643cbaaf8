// SPDX-License-Identifier: Apache-2.0
// Stands in for gloo's header of this name: names only.
#pragma once

namespace gloo::transport {

class Device;
class UnboundBuffer;

}  // namespace gloo::transport
