// SPDX-License-Identifier: GPL-2.0
/*
 * Out-of-line versions of what the kernel offers as macros or inline
 * functions: pages, timers, work queues, compression and checksums.
 */
#include <crypto/acompress.h>
#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/crc32.h>
#include <linux/gfp.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/timer.h>
#include <linux/workqueue.h>

#include "bindings_helper_b.h"

/* 2^order zeroed pages of lowmem, or NULL. */
void *rvdo_alloc_pages(unsigned int order)
{
	return (void *)__get_free_pages(GFP_NOIO | __GFP_ZERO | __GFP_NOWARN, order);
}

void rvdo_free_pages(void *address, unsigned int order)
{
	free_pages((unsigned long)address, order);
}

/* Until the restore, no allocation of this task waits for I/O, whatever its flags say. */
unsigned int rvdo_noio_save(void)
{
	return memalloc_noio_save();
}

void rvdo_noio_restore(unsigned int flags)
{
	memalloc_noio_restore(flags);
}

u32 rvdo_crc32_le(u32 seed, const u8 *data, size_t len)
{
	return crc32_le(seed, data, len);
}

void rvdo_random_bytes(u8 *bytes, size_t len)
{
	get_random_bytes(bytes, len);
}

unsigned int rvdo_online_cpus(void)
{
	return num_online_cpus();
}

struct workqueue_struct *rvdo_alloc_workqueue(const char *name, unsigned int max_active)
{
	return alloc_workqueue("%s", WQ_MEM_RECLAIM | WQ_UNBOUND, max_active, name);
}

void rvdo_destroy_workqueue(struct workqueue_struct *wq)
{
	destroy_workqueue(wq);
}

/* Only when the module is in use anyway. */
void rvdo_pin_module(void)
{
	__module_get(THIS_MODULE);
}

void rvdo_unpin_module(void)
{
	module_put(THIS_MODULE);
}

void rvdo_synchronize_rcu(void)
{
	synchronize_rcu();
}

void rvdo_synchronize_rcu_tasks(void)
{
	synchronize_rcu_tasks();
}

/*
 * Calls @run; the block requests it makes are sent together afterwards. Drivers
 * below that allocate in its context do not wait for I/O: it may be ours.
 */
void rvdo_run_plugged(void (*run)(void *context), void *context)
{
	unsigned int flags = memalloc_noio_save();
	struct blk_plug plug;

	blk_start_plug(&plug);
	run(context);
	blk_finish_plug(&plug);
	memalloc_noio_restore(flags);
	cond_resched();
}

void rvdo_completion_init(struct completion *completion)
{
	init_completion(completion);
}

/* A wait that may take long: it is neither load nor a hung task. */
void rvdo_completion_wait_idle(struct completion *completion)
{
	wait_for_completion_state(completion, TASK_IDLE);
}

/* A timer of its own on the heap. @fire is called in softirq context. */
struct rvdo_timer {
	struct timer_list timer;
	void (*fire)(void *context);
	void *context;
};

static void rvdo_timer_fire(struct timer_list *t)
{
	struct rvdo_timer *timer = container_of(t, struct rvdo_timer, timer);

	timer->fire(timer->context);
}

struct rvdo_timer *rvdo_timer_create(void (*fire)(void *context), void *context)
{
	struct rvdo_timer *timer = kzalloc(sizeof(*timer), GFP_NOIO);

	if (!timer)
		return NULL;
	timer->fire = fire;
	timer->context = context;
	timer_setup(&timer->timer, rvdo_timer_fire, 0);
	return timer;
}

void rvdo_timer_start(struct rvdo_timer *timer, unsigned int delay_ms)
{
	mod_timer(&timer->timer, jiffies + msecs_to_jiffies(delay_ms));
}

/* @fire is not running when this returns, and will not run until the next start. */
void rvdo_timer_stop(struct rvdo_timer *timer)
{
	timer_delete_sync(&timer->timer);
}

void rvdo_timer_destroy(struct rvdo_timer *timer)
{
	timer_shutdown_sync(&timer->timer);
	kfree(timer);
}

/* An error pointer on failure. May sleep and load modules. */
struct crypto_acomp *rvdo_crypto_alloc_acomp(const char *name, bool synchronous)
{
	return crypto_alloc_acomp(name, 0, synchronous ? CRYPTO_ALG_ASYNC : 0);
}

void rvdo_crypto_free_acomp(struct crypto_acomp *tfm)
{
	crypto_free_acomp(tfm);
}

const char *rvdo_acomp_driver_name(struct crypto_acomp *tfm)
{
	return crypto_acomp_driver_name(tfm);
}

const char *rvdo_acomp_algorithm_name(struct crypto_acomp *tfm)
{
	return crypto_acomp_alg_name(tfm);
}

bool rvdo_acomp_is_async(struct crypto_acomp *tfm)
{
	return acomp_is_async(tfm);
}

struct acomp_req *rvdo_acomp_request_alloc(struct crypto_acomp *tfm)
{
	return acomp_request_alloc(tfm, GFP_NOIO);
}

void rvdo_acomp_request_free(struct acomp_req *req)
{
	acomp_request_free(req);
}

/*
 * Both buffers are single physically contiguous pieces of lowmem. The request
 * may wait in a backlog. It must not sleep for memory: its completion may be
 * what frees some.
 */
void rvdo_acomp_request_prepare(struct acomp_req *req, const u8 *src, unsigned int slen, u8 *dst,
				unsigned int dlen, void (*done)(void *context, int err),
				void *context)
{
	acomp_request_set_callback(req, CRYPTO_TFM_REQ_MAY_BACKLOG, done, context);
	acomp_request_set_src_dma(req, src, slen);
	acomp_request_set_dst_dma(req, dst, dlen);
}

int rvdo_acomp_compress(struct acomp_req *req)
{
	return crypto_acomp_compress(req);
}

int rvdo_acomp_decompress(struct acomp_req *req)
{
	return crypto_acomp_decompress(req);
}

/* What the driver says it wrote, once the request is over. */
unsigned int rvdo_acomp_produced(struct acomp_req *req)
{
	return req->dlen;
}
