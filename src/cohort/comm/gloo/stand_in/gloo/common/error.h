// SPDX-License-Identifier: Apache-2.0
// Stands in for gloo's header of this name; nothing of it is needed.
#pragma once
