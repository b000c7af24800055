/* SPDX-License-Identifier: GPL-2.0 */
#ifndef FAKE_IAA_CODEC_H
#define FAKE_IAA_CODEC_H

#include <linux/types.h>

int codec_init(void);
void codec_exit(void);
int codec_compress(const u8 *src, unsigned int slen, u8 *dst, unsigned int *dlen);
int codec_decompress(const u8 *src, unsigned int slen, u8 *dst, unsigned int *dlen);

#endif /* FAKE_IAA_CODEC_H */
