// SPDX-License-Identifier: Apache-2.0
// Stands in for gloo's header of this name, which LibTorch's ProcessGroupGloo.hpp
// includes but the wheel does not ship. Nothing of it is needed.
#pragma once
