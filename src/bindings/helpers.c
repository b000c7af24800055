// SPDX-License-Identifier: GPL-2.0
#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/bvec.h>
#include <linux/file.h>
#include <linux/highmem.h>

#include "helpers.h"

/*
 * Copies @len bytes that start @offset bytes into what is left of @bio to @dst.
 * Returns how many bytes there were to copy.
 */
unsigned int rvdo_bio_copy_out(struct bio *bio, unsigned int offset, void *dst, unsigned int len)
{
	struct bvec_iter iter, start = bio->bi_iter;
	struct bio_vec bv;
	unsigned int done = 0;

	if (!bio_has_data(bio) || offset >= start.bi_size)
		return 0;
	bio_advance_iter(bio, &start, offset);
	start.bi_size = min(start.bi_size, len);
	__bio_for_each_segment(bv, bio, iter, start) {
		memcpy_from_bvec(dst + done, &bv);
		done += bv.bv_len;
	}
	return done;
}

/* The other direction: from @src into the pages of @bio. */
unsigned int rvdo_bio_copy_in(struct bio *bio, unsigned int offset, const void *src, unsigned int len)
{
	struct bvec_iter iter, start = bio->bi_iter;
	struct bio_vec bv;
	unsigned int done = 0;

	if (!bio_has_data(bio) || offset >= start.bi_size)
		return 0;
	bio_advance_iter(bio, &start, offset);
	start.bi_size = min(start.bi_size, len);
	__bio_for_each_segment(bv, bio, iter, start) {
		memcpy_to_bvec(&bv, src + done);
		done += bv.bv_len;
	}
	return done;
}

void rvdo_bio_zero(struct bio *bio)
{
	if (bio_has_data(bio))
		zero_fill_bio(bio);
}

void rvdo_bio_set_dev(struct bio *bio, struct block_device *bdev)
{
	bio_set_dev(bio, bdev);
}

sector_t rvdo_bdev_sectors(struct block_device *bdev)
{
	return bdev_nr_sectors(bdev);
}

unsigned int rvdo_bdev_logical_block_size(struct block_device *bdev)
{
	return bdev_logical_block_size(bdev);
}

/* Writes the kernel's name of @bdev; returns its length, which is less than @len. */
unsigned int rvdo_bdev_name(struct block_device *bdev, char *buf, unsigned int len)
{
	return scnprintf(buf, len, "%pg", bdev);
}

dev_t rvdo_bdev_number(struct block_device *bdev)
{
	return bdev->bd_dev;
}

struct file *rvdo_get_file(struct file *file)
{
	return get_file(file);
}
