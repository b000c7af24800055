// SPDX-License-Identifier: GPL-2.0
/*
 * Out-of-line versions of what the kernel offers as macros or inline
 * functions: pages, timers, work queues, compression and checksums.
 */
#include "bindings_helper_b.h"
