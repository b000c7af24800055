/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Out-of-line versions of what the kernel offers as macros or inline functions:
 * bios and block devices.
 */
#ifndef RVDO_HELPERS_H
#define RVDO_HELPERS_H

#include <linux/types.h>

struct bio;
struct block_device;
struct file;

unsigned int rvdo_bio_copy_out(struct bio *bio, unsigned int offset, void *dst, unsigned int len);
unsigned int rvdo_bio_copy_in(struct bio *bio, unsigned int offset, const void *src, unsigned int len);
void rvdo_bio_zero(struct bio *bio);
void rvdo_bio_set_dev(struct bio *bio, struct block_device *bdev);
sector_t rvdo_bdev_sectors(struct block_device *bdev);
unsigned int rvdo_bdev_logical_block_size(struct block_device *bdev);
unsigned int rvdo_bdev_name(struct block_device *bdev, char *buf, unsigned int len);
dev_t rvdo_bdev_number(struct block_device *bdev);
struct file *rvdo_get_file(struct file *file);

#endif /* RVDO_HELPERS_H */
