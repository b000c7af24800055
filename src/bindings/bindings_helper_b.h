/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Headers and helper prototypes for pages, timers, work queues, compression
 * and checksums. Included by bindings_helper.h and by helpers_b.c.
 */
#ifndef RVDO_BINDINGS_HELPER_B_H
#define RVDO_BINDINGS_HELPER_B_H

#include <linux/types.h>

#endif /* RVDO_BINDINGS_HELPER_B_H */
