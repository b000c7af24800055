// SPDX-License-Identifier: GPL-2.0
/*
 * A compression engine for tests: an asynchronous acomp driver that behaves like
 * hardware, well or badly as its parameters say.
 *
 * It takes requests at once, computes in a work item, and answers after delay_us
 * from the context that was chosen. All parameters in the second and third group
 * can be changed at any time; "every" parameters count requests, 0 is never.
 */
#include <crypto/internal/acompress.h>
#include <crypto/scatterwalk.h>
#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "codec.h"

/* What it is. */
static char *alg = "deflate";
module_param(alg, charp, 0444);
MODULE_PARM_DESC(alg, "algorithm; all but deflate are computed by the kernel's own implementation");
static char *driver = "deflate-iaa";
module_param(driver, charp, 0444);
MODULE_PARM_DESC(driver, "name of the driver");
static int priority = 300;
module_param(priority, int, 0444);

/* When and where it answers. */
static uint delay_us = 20;
module_param(delay_us, uint, 0644);
static bool reorder;
module_param(reorder, bool, 0644);
MODULE_PARM_DESC(reorder, "spread the answers over nine times delay_us");
static uint context;
module_param(context, uint, 0644);
MODULE_PARM_DESC(context, "answer from 0: a work item, 1: a soft interrupt, 2: a hard interrupt");

/* What goes wrong. */
#define COMPRESSION	1
#define DECOMPRESSION	2
static uint faulty = COMPRESSION | DECOMPRESSION;
module_param(faulty, uint, 0644);
MODULE_PARM_DESC(faulty, "what goes wrong at all: 1 compression, 2 decompression, 3 both");
static uint fail_every;
module_param(fail_every, uint, 0644);
static int fail_errno = EIO;
module_param(fail_errno, int, 0644);
static uint length_every;
module_param(length_every, uint, 0644);
MODULE_PARM_DESC(length_every, "add length_bias to the length of every n-th result");
static int length_bias = 1;
module_param(length_bias, int, 0644);
static uint corrupt_every;
module_param(corrupt_every, uint, 0644);
MODULE_PARM_DESC(corrupt_every, "turn a bit of every n-th result");
static uint busy_every;
module_param(busy_every, uint, 0644);
MODULE_PARM_DESC(busy_every, "answer EBUSY and take the request from a backlog later");
static bool gone;
module_param(gone, bool, 0644);
MODULE_PARM_DESC(gone, "answer ENODEV");

/* What was done. */
#define COUNTER(name) \
	static atomic_t name; \
	module_param_named(n_##name, name.counter, int, 0444)
COUNTER(compressed);
COUNTER(decompressed);
COUNTER(answered);
COUNTER(failed);
COUNTER(wrong_length);
COUNTER(corrupted);
COUNTER(busy);
COUNTER(refused);
COUNTER(held);
COUNTER(in_flight);
COUNTER(out_of_order);
static atomic_t accepted, last_answered;

struct request {
	struct acomp_req *req;
	struct work_struct work;
	struct hrtimer timer;
	struct list_head held;
	unsigned int number;
	bool compress;
	bool backlogged;
	int err;
};

/* Of its own, so that no work item is left when the module goes. */
static struct workqueue_struct *engine;

/* Requests that are not answered. */
static DEFINE_SPINLOCK(held_lock);
static LIST_HEAD(held_requests);
static uint hold_every;

static bool hits(unsigned int every, const struct request *r)
{
	return every && (READ_ONCE(faulty) & (r->compress ? COMPRESSION : DECOMPRESSION)) &&
	       r->number % every == 0;
}

/* Any context. @r belongs to the owner of the request afterwards. */
static void answer(struct request *r)
{
	struct acomp_req *req = r->req;
	bool hard = in_hardirq();
	int err = r->err;

	if (atomic_xchg(&last_answered, r->number) > (int)r->number)
		atomic_inc(&out_of_order);
	atomic_inc(&answered);
	atomic_dec(&in_flight);
	/* The crypto API wants completions with bottom halves disabled. */
	if (!hard)
		local_bh_disable();
	acomp_request_complete(req, err);
	if (!hard)
		local_bh_enable();
}

static void answer_work(struct work_struct *work)
{
	answer(container_of(work, struct request, work));
}

static enum hrtimer_restart answer_timer(struct hrtimer *timer)
{
	struct request *r = container_of(timer, struct request, timer);

	if (READ_ONCE(context) == 0) {
		INIT_WORK(&r->work, answer_work);
		queue_work(engine, &r->work);
	} else {
		answer(r);
	}
	return HRTIMER_NORESTART;
}

static void start_timer(struct request *r)
{
	unsigned int steps = READ_ONCE(reorder) ? 1 + r->number * 5 % 9 : 1;
	u64 delay_ns = (u64)READ_ONCE(delay_us) * steps * NSEC_PER_USEC;
	enum hrtimer_mode mode = READ_ONCE(context) == 2 ? HRTIMER_MODE_REL_HARD :
							   HRTIMER_MODE_REL_SOFT;

	hrtimer_setup(&r->timer, answer_timer, CLOCK_MONOTONIC, mode);
	hrtimer_start(&r->timer, ns_to_ktime(delay_ns), mode);
}

/* Keeps the request for ever, or rather until it is told not to. */
static bool hold(struct request *r)
{
	bool kept = false;

	spin_lock_bh(&held_lock);
	if (hits(hold_every, r)) {
		list_add_tail(&r->held, &held_requests);
		atomic_inc(&held);
		kept = true;
	}
	spin_unlock_bh(&held_lock);
	return kept;
}

static void release_held(void)
{
	struct request *r, *next;
	LIST_HEAD(requests);

	spin_lock_bh(&held_lock);
	list_splice_init(&held_requests, &requests);
	spin_unlock_bh(&held_lock);
	list_for_each_entry_safe(r, next, &requests, held) {
		atomic_dec(&held);
		start_timer(r);
	}
}

static int set_hold_every(const char *value, const struct kernel_param *kp)
{
	int err;

	spin_lock_bh(&held_lock);
	err = param_set_uint(value, kp);
	spin_unlock_bh(&held_lock);
	if (!err && !hold_every)
		release_held();
	return err;
}

static const struct kernel_param_ops hold_ops = {
	.set = set_hold_every,
	.get = param_get_uint,
};
module_param_cb(hold_every, &hold_ops, &hold_every, 0644);
MODULE_PARM_DESC(hold_every, "never answer every n-th request; 0 answers all held ones");

static int compute_here(struct request *r)
{
	struct acomp_req *req = r->req;
	u8 *src = sg_virt(req->src), *dst = sg_virt(req->dst);

	if (r->compress)
		return codec_compress(src, req->slen, dst, &req->dlen);
	return codec_decompress(src, req->slen, dst, &req->dlen);
}

static int compute_elsewhere(struct request *r)
{
	ACOMP_FBREQ_ON_STACK(fallback, r->req);
	int err;

	err = r->compress ? crypto_acomp_compress(fallback) : crypto_acomp_decompress(fallback);
	r->req->dlen = fallback->dlen;
	return err;
}

static int compute(struct request *r)
{
	struct acomp_req *req = r->req;
	bool simple = !acomp_request_isvirt(req) && sg_nents_for_len(req->src, req->slen) == 1 &&
		      sg_nents_for_len(req->dst, req->dlen) == 1;

	/* Like the real one, it takes only what is in one piece. */
	return simple && !strcmp(alg, "deflate") ? compute_here(r) : compute_elsewhere(r);
}

static void damage(struct request *r)
{
	struct acomp_req *req = r->req;

	if (hits(READ_ONCE(fail_every), r)) {
		r->err = -READ_ONCE(fail_errno);
		atomic_inc(&failed);
	}
	if (r->err)
		return;
	if (hits(READ_ONCE(corrupt_every), r) && req->dlen && !acomp_request_isvirt(req)) {
		((u8 *)sg_virt(req->dst))[req->dlen / 2] ^= 0x10;
		atomic_inc(&corrupted);
	}
	if (hits(READ_ONCE(length_every), r)) {
		req->dlen += READ_ONCE(length_bias);
		atomic_inc(&wrong_length);
	}
}

static void engine_work(struct work_struct *work)
{
	struct request *r = container_of(work, struct request, work);

	if (r->backlogged) {
		local_bh_disable();
		acomp_request_complete(r->req, -EINPROGRESS);
		local_bh_enable();
	}
	r->err = compute(r);
	damage(r);
	if (!hold(r))
		start_timer(r);
}

static int submit(struct acomp_req *req, bool compress)
{
	struct request *r = acomp_request_ctx(req);
	int answer_now = -EINPROGRESS;

	if (READ_ONCE(gone)) {
		atomic_inc(&refused);
		return -ENODEV;
	}
	*r = (struct request){ .req = req, .compress = compress };
	r->number = atomic_inc_return(&accepted);
	if (hits(READ_ONCE(busy_every), r)) {
		atomic_inc(&busy);
		if (!(acomp_request_flags(req) & CRYPTO_TFM_REQ_MAY_BACKLOG))
			return -ENOSPC;
		r->backlogged = true;
		answer_now = -EBUSY;
	}
	atomic_inc(compress ? &compressed : &decompressed);
	atomic_inc(&in_flight);
	INIT_WORK(&r->work, engine_work);
	queue_work(engine, &r->work);
	return answer_now;
}

static int fake_compress(struct acomp_req *req)
{
	return submit(req, true);
}

static int fake_decompress(struct acomp_req *req)
{
	return submit(req, false);
}

static struct acomp_alg fake = {
	.compress = fake_compress,
	.decompress = fake_decompress,
	.base = {
		.cra_flags = CRYPTO_ALG_ASYNC,
		.cra_reqsize = sizeof(struct request),
		.cra_module = THIS_MODULE,
	},
};

static int __init fake_iaa_init(void)
{
	int err = codec_init();

	if (err)
		return err;
	engine = alloc_workqueue("fake_iaa", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!engine) {
		codec_exit();
		return -ENOMEM;
	}
	strscpy(fake.base.cra_name, alg);
	strscpy(fake.base.cra_driver_name, driver);
	fake.base.cra_priority = priority;
	err = crypto_register_acomp(&fake);
	if (err) {
		destroy_workqueue(engine);
		codec_exit();
	}
	return err;
}

static void __exit fake_iaa_exit(void)
{
	WRITE_ONCE(hold_every, 0);
	release_held();
	crypto_unregister_acomp(&fake);
	/* The last timers return, then the last work items. */
	synchronize_rcu();
	destroy_workqueue(engine);
	codec_exit();
}

module_init(fake_iaa_init);
module_exit(fake_iaa_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Asynchronous compression engine for tests");
MODULE_SOFTDEP("pre: deflate");
