/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What bindgen reads: the headers whose types and functions the wrappers use,
 * and constants that bindgen cannot evaluate because their macros hold casts.
 * A constant RUST_CONST_HELPER_X becomes X in Rust.
 */
#ifndef RVDO_BINDINGS_HELPER_H
#define RVDO_BINDINGS_HELPER_H

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/device-mapper.h>
#include <linux/file.h>

#include "helpers.h"
#include "bindings_helper_b.h"

/* Flags of a bio's operation word. */
static const blk_opf_t RUST_CONST_HELPER_REQ_OP_MASK = REQ_OP_MASK;
static const blk_opf_t RUST_CONST_HELPER_REQ_SYNC = REQ_SYNC;
static const blk_opf_t RUST_CONST_HELPER_REQ_META = REQ_META;
static const blk_opf_t RUST_CONST_HELPER_REQ_PRIO = REQ_PRIO;
static const blk_opf_t RUST_CONST_HELPER_REQ_FUA = REQ_FUA;
static const blk_opf_t RUST_CONST_HELPER_REQ_PREFLUSH = REQ_PREFLUSH;
static const blk_opf_t RUST_CONST_HELPER_REQ_IDLE = REQ_IDLE;

/* How a bio ended. */
static const blk_status_t RUST_CONST_HELPER_BLK_STS_OK = BLK_STS_OK;
static const blk_status_t RUST_CONST_HELPER_BLK_STS_NOTSUPP = BLK_STS_NOTSUPP;
static const blk_status_t RUST_CONST_HELPER_BLK_STS_TIMEOUT = BLK_STS_TIMEOUT;
static const blk_status_t RUST_CONST_HELPER_BLK_STS_NOSPC = BLK_STS_NOSPC;
static const blk_status_t RUST_CONST_HELPER_BLK_STS_TRANSPORT = BLK_STS_TRANSPORT;
static const blk_status_t RUST_CONST_HELPER_BLK_STS_MEDIUM = BLK_STS_MEDIUM;
static const blk_status_t RUST_CONST_HELPER_BLK_STS_RESOURCE = BLK_STS_RESOURCE;
static const blk_status_t RUST_CONST_HELPER_BLK_STS_IOERR = BLK_STS_IOERR;
static const blk_status_t RUST_CONST_HELPER_BLK_STS_OFFLINE = BLK_STS_OFFLINE;

static const gfp_t RUST_CONST_HELPER_GFP_NOWAIT = GFP_NOWAIT;

static const blk_mode_t RUST_CONST_HELPER_BLK_OPEN_READ = BLK_OPEN_READ;
static const blk_mode_t RUST_CONST_HELPER_BLK_OPEN_WRITE = BLK_OPEN_WRITE;

#endif /* RVDO_BINDINGS_HELPER_H */
