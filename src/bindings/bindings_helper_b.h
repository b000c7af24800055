/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Headers and helper prototypes for pages, timers, work queues, compression
 * and checksums. Included by bindings_helper.h and by helpers_b.c.
 *
 * The structures stay opaque: no layout reaches Rust through this file.
 */
#ifndef RVDO_BINDINGS_HELPER_B_H
#define RVDO_BINDINGS_HELPER_B_H

#include <linux/types.h>

struct acomp_req;
struct completion;
struct crypto_acomp;
struct rvdo_timer;
struct workqueue_struct;

/* Memory. */
void *rvdo_alloc_pages(unsigned int order);
void rvdo_free_pages(void *address, unsigned int order);
unsigned int rvdo_noio_save(void);
void rvdo_noio_restore(unsigned int flags);

/* Checksums. */
u32 rvdo_crc32_le(u32 seed, const u8 *data, size_t len);

/* Random numbers. */
void rvdo_random_bytes(u8 *bytes, size_t len);

/* Work queues. */
unsigned int rvdo_online_cpus(void);
struct workqueue_struct *rvdo_alloc_workqueue(const char *name, unsigned int max_active);
void rvdo_destroy_workqueue(struct workqueue_struct *wq);
void rvdo_pin_module(void);
void rvdo_unpin_module(void);
void rvdo_synchronize_rcu(void);
void rvdo_synchronize_rcu_tasks(void);
void rvdo_run_plugged(void (*run)(void *context), void *context);

/* Waiting. */
void rvdo_completion_init(struct completion *completion);
void rvdo_completion_wait_idle(struct completion *completion);

/* Timers. */
struct rvdo_timer *rvdo_timer_create(void (*fire)(void *context), void *context);
void rvdo_timer_start(struct rvdo_timer *timer, unsigned int delay_ms);
void rvdo_timer_stop(struct rvdo_timer *timer);
void rvdo_timer_destroy(struct rvdo_timer *timer);

/* Compression. */
struct crypto_acomp *rvdo_crypto_alloc_acomp(const char *name, bool synchronous);
void rvdo_crypto_free_acomp(struct crypto_acomp *tfm);
const char *rvdo_acomp_driver_name(struct crypto_acomp *tfm);
const char *rvdo_acomp_algorithm_name(struct crypto_acomp *tfm);
bool rvdo_acomp_is_async(struct crypto_acomp *tfm);
struct acomp_req *rvdo_acomp_request_alloc(struct crypto_acomp *tfm);
void rvdo_acomp_request_free(struct acomp_req *req);
void rvdo_acomp_request_prepare(struct acomp_req *req, const u8 *src, unsigned int slen, u8 *dst,
				unsigned int dlen, void (*done)(void *context, int err),
				void *context);
int rvdo_acomp_compress(struct acomp_req *req);
int rvdo_acomp_decompress(struct acomp_req *req);
unsigned int rvdo_acomp_produced(struct acomp_req *req);

/* LZ4 with an acceleration. */
int rvdo_lz4_register(int acceleration);
void rvdo_lz4_unregister_all(void);

#endif /* RVDO_BINDINGS_HELPER_B_H */
