#!/bin/bash
# A compression engine that goes away, does not answer, is exchanged or was never there: the volume stays usable and right.
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
# A driver that was left alone is tried again after a while; then everything is as before.
comes_back() {
	local _
	for _ in $(seq 60); do
		rounds=$((rounds + 1))
		blocks 8 "back $rounds" 0 compressible >/tmp/case/part
		put /tmp/case/part /dev/mapper/v $((rounds % 4)) $model
		[ "$(compress_stat_of v backing_off)" = 0 ] && return
		sleep 1
	done
	fail "the engine is left alone for ever"
}

case_begin present
need load fake_iaa
need format "$disk" $mib
truncate -s 5M $model
need start rvdo v "$disk" $mib 4096 compression on upgrade on compressionType deflate-iaa
survives "good"
same driver "$(compress_stat_of v driver)" deflate-iaa
[ "$(figure v deflate-iaa decompress_calls)" -gt 100 ] || fail "the engine does not decompress: $(ask v compress-stats)"

case_begin gone-half-way
blocks 1024 "half way" 0 compressible >/tmp/case/part
dd if=/tmp/case/part of=/dev/mapper/v bs=64K seek=16 oflag=direct conv=fsync status=none &
writer=$!
dd if=/tmp/case/part of=$model bs=64K seek=16 conv=notrunc status=none
dmesg -c >/dev/null
engine gone=1
check wait $writer
check holds /dev/mapper/v $model
survives "gone"
same "left alone" "$(compress_stat_of v backing_off)" 1
[ "$(dmesg | grep -c 'is in trouble')" -lt 10 ] || fail "flood in the log"
engine gone=0
comes_back
survives "back"

case_begin never-answers
engine faulty=3 hold_every=5
survives "holds every fifth"
[ "$(compress_stat_of v stalls)" -gt 0 ] || fail "no stall was seen"
engine hold_every=0
comes_back
survives "answers again"

case_begin changed-while-running
check ask v accelerators none
same driver "$(compress_stat_of v driver)" deflate-generic
survives "software only"
check rmmod fake_iaa
need load fake_iaa
check ask v compress-accelerators deflate-iaa
check ask v decompress-accelerators none
same driver "$(compress_stat_of v driver)" deflate-iaa
before=$(figure v deflate-iaa decompress_calls)
survives "compression only"
same "engine decompressions" "$(figure v deflate-iaa decompress_calls)" "$before"
check dmsetup remove v

case_begin absent
check rmmod fake_iaa
need start rvdo v "$disk" $mib 4096 compression on compressionType deflate-iaa accelerators qat_deflate
same driver "$(compress_stat_of v driver)" deflate-generic
same requested "$(compress_stat_of v requested)" deflate-iaa
dmesg | grep -q "there is no such driver now" || fail "no line in the log"
check holds /dev/mapper/v $model
survives "absent"
check dmsetup remove v
check rmmod rvdo
