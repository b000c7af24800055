#!/bin/bash
# A compression engine that is slow, busy, fails or lies: the volume stays usable and right.
. /job/lib.sh
. /job/volume.sh
. /job/compression.sh

disk=$(blank_disk /dev/vda)
model=/tmp/case/model
mib=128
mkdir -p /tmp/case
modprobe -a lz4 deflate
need load rvdo
# store FILE AT_MIB: writes it there and into the model. A flush has the packer store what is still being compressed as it is, so
# this waits until nothing is.
store() {
	check dd if="$1" of=/dev/mapper/v bs=1M seek="$2" oflag=direct conv=notrunc status=none
	dd if="$1" of=$model bs=1M seek="$2" conv=notrunc status=none
	for _ in $(seq 300); do
		[ "$(compress_stat_of v outstanding)" = 0 ] && break
		sleep 0.1
	done
	check sync /dev/mapper/v
}
rounds=0
# survives WHAT: something new is written and everything reads back; no error, no read-only mode.
survives() {
	rounds=$((rounds + 1))
	blocks 256 "faults $rounds" 20 compressible >/tmp/case/part
	store /tmp/case/part $((rounds % 4))
	check holds /dev/mapper/v $model
	stays_normal v
	echo "$1: driver $(compress_stat_of v driver), backing off $(compress_stat_of v backing_off), fallbacks $(compress_stat_of v fallbacks), errors $(figure v deflate-iaa errors) $(figure v deflate-iaa decompress_errors), stalls $(compress_stat_of v stalls)"
}
# Opens the driver anew, without waiting until it would be tried again.
comes_back() {
	check ask v accelerators auto
	same "driver" "$(compress_stat_of v driver)" deflate-iaa
	same "left alone" "$(compress_stat_of v backing_off)" 0
}

case_begin present
need load fake_iaa
need format "$disk" $mib
truncate -s 5M $model
need start rvdo v "$disk" $mib 4096 compression on upgrade on compressionType deflate-iaa
survives "good"
same driver "$(compress_stat_of v driver)" deflate-iaa
[ "$(figure v deflate-iaa decompress_calls)" -gt 100 ] || fail "the engine does not decompress: $(ask v compress-stats)"

case_begin slow-and-out-of-order
engine delay_us=3000 reorder=1
survives "slow"
engine delay_us=20 reorder=0

case_begin busy
engine busy_every=3
survives "busy"
engine busy_every=0

case_begin compression-errors
for errno in 5 19 110; do
	engine faulty=1 fail_every=3 fail_errno=$errno
	survives "errno $errno at times"
	engine fail_every=1
	survives "errno $errno always"
	engine fail_every=0
	comes_back
done

case_begin compression-lies
engine faulty=1 length_every=2 length_bias=5000
survives "too long"
# Such an engine does not pass the test of a driver that is opened. Every answer is wrong here: which of its requests the test
# makes depends on how many there were before.
engine length_every=1
check ask v accelerators auto
same "driver" "$(compress_stat_of v driver)" deflate-generic
engine length_every=0
comes_back
check ask v compression-verify on
engine length_every=2 length_bias=-3
survives "cut short"
[ "$(compress_stat_of v verify_errors)" -gt 0 ] || fail "no verify error"
engine length_every=0 corrupt_every=2
survives "corrupt"
engine corrupt_every=0
check ask v compression-verify off
comes_back

case_begin decompression-errors
for setting in "fail_every=3 fail_errno=5" "fail_every=1 fail_errno=19" "length_every=2 length_bias=-1" "length_every=1 length_bias=5000"; do
	# shellcheck disable=SC2086 # two settings
	engine faulty=2 $setting
	survives "decompression $setting"
	engine fail_every=0 length_every=0
	comes_back
done
[ "$(compress_stat_of v decompress_errors)" = 0 ] || fail "decompress errors: $(compress_stat_of v decompress_errors)"

check dmsetup remove v
check rmmod fake_iaa
check rmmod rvdo
