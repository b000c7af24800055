// SPDX-License-Identifier: GPL-2.0
/*
 * Raw deflate as the analytics accelerator makes it: one final block with the
 * fixed Huffman codes, and matches at most 4095 bytes back.
 *
 * Both directions need memory of their own; one operation runs at a time.
 */
#include <linux/minmax.h>
#include <linux/mutex.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include <linux/zlib.h>

#include "codec.h"

#define DISTANCE_MAX	4095
#define MATCH_MIN	3
#define MATCH_MAX	258
#define HASH_BITS	12
#define END_OF_BLOCK	256

static DEFINE_MUTEX(codec_lock);
/* Where the hashed three bytes were seen last, plus one. Guarded by codec_lock. */
static u32 *last_seen;
/* zlib's memory. Guarded by codec_lock. */
static void *inflate_memory;

struct bit_writer {
	u8 *out;
	unsigned int size;
	unsigned int used;
	u64 bits;
	unsigned int count;
	bool full;
};

/* Appends the low @count bits of @value, the lowest first. */
static void put_bits(struct bit_writer *w, u32 value, unsigned int count)
{
	w->bits |= (u64)value << w->count;
	w->count += count;
	while (w->count >= 8) {
		if (w->used == w->size) {
			w->full = true;
			w->count = 0;
			return;
		}
		w->out[w->used++] = w->bits;
		w->bits >>= 8;
		w->count -= 8;
	}
}

/* Huffman codes go out with their highest bit first. */
static void put_code(struct bit_writer *w, u32 code, unsigned int count)
{
	u32 reversed = 0;
	unsigned int i;

	for (i = 0; i < count; i++)
		reversed |= ((code >> i) & 1) << (count - 1 - i);
	put_bits(w, reversed, count);
}

/* RFC 1951, 3.2.6. */
static void put_symbol(struct bit_writer *w, unsigned int symbol)
{
	if (symbol < 144)
		put_code(w, 0x30 + symbol, 8);
	else if (symbol < 256)
		put_code(w, 0x190 + symbol - 144, 9);
	else if (symbol < 280)
		put_code(w, symbol - 256, 7);
	else
		put_code(w, 0xc0 + symbol - 280, 8);
}

/* A code and the bits that follow it. */
struct ranged {
	unsigned int code;
	unsigned int extra;
	unsigned int rest;
};

/*
 * Both tables of ranges in RFC 1951, 3.2.5 are built alike: the first 2 << @step
 * codes stand for one value each, and then every 1 << @step codes have one extra
 * bit more. @value counts from 0.
 */
static struct ranged range_of(unsigned int value, unsigned int step)
{
	struct ranged r = { 0 };
	unsigned int codes = 2 << step;

	while (value >> r.extra >= codes) {
		r.code += codes;
		value -= codes << r.extra;
		codes = 1 << step;
		r.extra++;
	}
	r.code += value >> r.extra;
	r.rest = value & ((1 << r.extra) - 1);
	return r;
}

static void put_match(struct bit_writer *w, unsigned int length, unsigned int distance)
{
	struct ranged r = range_of(length - MATCH_MIN, 2);

	/* The longest match has a code of its own. */
	if (length == MATCH_MAX)
		r = (struct ranged){ .code = 285 - 257 };
	put_symbol(w, 257 + r.code);
	put_bits(w, r.rest, r.extra);

	r = range_of(distance - 1, 1);
	put_code(w, r.code, 5);
	put_bits(w, r.rest, r.extra);
}

static unsigned int hash(const u8 *p)
{
	u32 three = p[0] | (u32)p[1] << 8 | (u32)p[2] << 16;

	return (three * 2654435761U) >> (32 - HASH_BITS);
}

/* Length of the match of the bytes at @at with those at @candidate. */
static unsigned int match_length(const u8 *src, unsigned int slen, unsigned int at,
				 unsigned int candidate)
{
	unsigned int most = min(slen - at, (unsigned int)MATCH_MAX), n = 0;

	while (n < most && src[at + n] == src[candidate + n])
		n++;
	return n;
}

static void encode(struct bit_writer *w, const u8 *src, unsigned int slen)
{
	unsigned int at = 0;

	memset(last_seen, 0, sizeof(*last_seen) << HASH_BITS);
	/* The last block, with fixed codes. */
	put_bits(w, 1, 1);
	put_bits(w, 1, 2);
	while (at < slen && !w->full) {
		unsigned int length = 0, distance = 0;

		if (slen - at >= MATCH_MIN) {
			u32 *seen = &last_seen[hash(src + at)];

			if (*seen && at - (*seen - 1) <= DISTANCE_MAX) {
				distance = at - (*seen - 1);
				length = match_length(src, slen, at, *seen - 1);
			}
			*seen = at + 1;
		}
		if (length >= MATCH_MIN) {
			put_match(w, length, distance);
			at += length;
		} else {
			put_symbol(w, src[at++]);
		}
	}
	put_symbol(w, END_OF_BLOCK);
	/* Pads the last byte. */
	put_bits(w, 0, -w->count & 7);
}

/* -E2BIG: the output does not fit. */
int codec_compress(const u8 *src, unsigned int slen, u8 *dst, unsigned int *dlen)
{
	struct bit_writer w = { .out = dst, .size = *dlen };

	mutex_lock(&codec_lock);
	encode(&w, src, slen);
	mutex_unlock(&codec_lock);
	*dlen = w.used;
	return w.full ? -E2BIG : 0;
}

static int inflate(z_stream *z)
{
	static const u8 zero;
	int err = zlib_inflate(z, Z_SYNC_FLUSH);

	/* A raw stream may need one more byte to be seen as over. */
	if (err == Z_OK && !z->avail_in && z->avail_out) {
		z->next_in = &zero;
		z->avail_in = 1;
		err = zlib_inflate(z, Z_FINISH);
	}
	if (err == Z_STREAM_END)
		return 0;
	return z->avail_out ? -EIO : -EOVERFLOW;
}

/* -EOVERFLOW: the output does not fit. -EIO: the input is damaged. */
int codec_decompress(const u8 *src, unsigned int slen, u8 *dst, unsigned int *dlen)
{
	z_stream z = { .next_in = src, .avail_in = slen, .next_out = dst, .avail_out = *dlen };
	int err;

	mutex_lock(&codec_lock);
	z.workspace = inflate_memory;
	err = zlib_inflateInit2(&z, -MAX_WBITS) == Z_OK ? inflate(&z) : -EIO;
	*dlen = z.total_out;
	mutex_unlock(&codec_lock);
	return err;
}

int codec_init(void)
{
	last_seen = vmalloc(sizeof(*last_seen) << HASH_BITS);
	inflate_memory = vmalloc(zlib_inflate_workspacesize());
	if (last_seen && inflate_memory)
		return 0;
	codec_exit();
	return -ENOMEM;
}

void codec_exit(void)
{
	vfree(last_seen);
	vfree(inflate_memory);
}
