// SPDX-License-Identifier: GPL-2.0
/*
 * LZ4 with an acceleration, as a compression algorithm of the crypto API.
 *
 * The kernel's own lz4 always compresses with acceleration 1, and the API has no
 * way to say otherwise. So each acceleration that was ever asked for is an
 * algorithm of its own, rvdo-lz4-N. What it writes is LZ4 like any other; its name
 * keeps others from getting it for "lz4".
 *
 * An algorithm stays until the module goes: others may hold a reference to what is
 * registered (the self-test of the API, whoever lists algorithms), and all that
 * keeps it from being freed under them is that such a reference pins the module.
 */
#include <crypto/internal/acompress.h>
#include <linux/list.h>
#include <linux/lz4.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "bindings_helper_b.h"

struct rvdo_lz4 {
	struct acomp_alg alg;
	struct crypto_acomp_streams streams;
	int acceleration;
	struct list_head list;
};

/* Guards the list. Held while registering. */
static DEFINE_MUTEX(algorithms_lock);
static LIST_HEAD(algorithms);

/* Runs in a work item of the API, which knows no scope of ours; writes wait for it. */
static void *alloc_memory(void)
{
	void *memory = kmalloc(LZ4_MEM_COMPRESS, GFP_NOIO);

	return memory ?: ERR_PTR(-ENOMEM);
}

static void free_memory(void *memory)
{
	kfree(memory);
}

static struct rvdo_lz4 *of_request(struct acomp_req *req)
{
	struct crypto_alg *alg = crypto_acomp_reqtfm(req)->base.__crt_alg;

	return container_of(alg, struct rvdo_lz4, alg.base);
}

/* Where @req's data is, if that is in one piece, or NULL. */
static const u8 *source(struct acomp_req *req)
{
	if (acomp_request_src_isvirt(req))
		return req->svirt;
	return sg_nents_for_len(req->src, req->slen) == 1 ? sg_virt(req->src) : NULL;
}

static u8 *destination(struct acomp_req *req)
{
	if (acomp_request_dst_isvirt(req))
		return req->dvirt;
	return sg_nents_for_len(req->dst, req->dlen) == 1 ? sg_virt(req->dst) : NULL;
}

static int compress(struct acomp_req *req)
{
	struct rvdo_lz4 *lz4 = of_request(req);
	const u8 *src = source(req);
	u8 *dst = destination(req);
	struct crypto_acomp_stream *stream;
	int n;

	if (!src || !dst)
		return -ENOSYS;
	stream = crypto_acomp_lock_stream_bh(&lz4->streams);
	n = LZ4_compress_fast(src, dst, req->slen, req->dlen, lz4->acceleration, stream->ctx);
	crypto_acomp_unlock_stream_bh(stream);
	if (n <= 0)
		return -ENOSPC;
	req->dlen = n;
	return 0;
}

static int decompress(struct acomp_req *req)
{
	const u8 *src = source(req);
	u8 *dst = destination(req);
	int n;

	if (!src || !dst)
		return -ENOSYS;
	n = LZ4_decompress_safe(src, dst, req->slen, req->dlen);
	if (n < 0)
		return -EINVAL;
	req->dlen = n;
	return 0;
}

static struct rvdo_lz4 *make(int acceleration)
{
	struct rvdo_lz4 *lz4 = kzalloc(sizeof(*lz4), GFP_KERNEL);
	int err;

	if (!lz4)
		return ERR_PTR(-ENOMEM);
	lz4->acceleration = acceleration;
	lz4->alg.compress = compress;
	lz4->alg.decompress = decompress;
	lz4->alg.base.cra_flags = CRYPTO_ALG_REQ_VIRT;
	lz4->alg.base.cra_module = THIS_MODULE;
	snprintf(lz4->alg.base.cra_name, CRYPTO_MAX_ALG_NAME, "rvdo-lz4-%d", acceleration);
	strscpy(lz4->alg.base.cra_driver_name, lz4->alg.base.cra_name);
	lz4->streams.alloc_ctx = alloc_memory;
	lz4->streams.free_ctx = free_memory;
	err = crypto_acomp_alloc_streams(&lz4->streams);
	if (err)
		goto free;
	err = crypto_register_acomp(&lz4->alg);
	if (err)
		goto free_streams;
	list_add(&lz4->list, &algorithms);
	return lz4;

free_streams:
	crypto_acomp_free_streams(&lz4->streams);
free:
	kfree(lz4);
	return ERR_PTR(err);
}

/* Makes the algorithm rvdo-lz4-@acceleration exist. 0 or an error number. */
int rvdo_lz4_register(int acceleration)
{
	struct rvdo_lz4 *lz4;
	int err = 0;

	mutex_lock(&algorithms_lock);
	list_for_each_entry(lz4, &algorithms, list)
		if (lz4->acceleration == acceleration)
			goto out;
	lz4 = make(acceleration);
	if (IS_ERR(lz4))
		err = PTR_ERR(lz4);
out:
	mutex_unlock(&algorithms_lock);
	return err;
}

/* When the module goes: nobody has a reference to any of them. */
void rvdo_lz4_unregister_all(void)
{
	struct rvdo_lz4 *lz4, *next;

	list_for_each_entry_safe(lz4, next, &algorithms, list) {
		list_del(&lz4->list);
		crypto_unregister_acomp(&lz4->alg);
		/* Before the streams that it fills are taken away from it. */
		cancel_work_sync(&lz4->streams.stream_work);
		crypto_acomp_free_streams(&lz4->streams);
		kfree(lz4);
	}
}
