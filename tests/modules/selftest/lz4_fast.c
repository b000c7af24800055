// SPDX-License-Identifier: GPL-2.0
/* The helpers of the module under test, built once more for this one. */
#include "../../../src/bindings/lz4_fast.c"
