#!/bin/bash
# A running volume gets more physical blocks with a new table, as `lvextend` of a pool does it.
. /job/lib.sh
. /job/volume.sh

need load rvdo
need modprobe dm-vdo
disk=$(blank_disk /dev/vda)
model=/tmp/case/model
mkdir -p /tmp/case

# line TARGET SLABS: the table of a volume with so many slabs.
line() { echo "0 $((1024 * 2048)) $1 V4 $disk $((VOLUME_OVERHEAD_BLOCKS + $2 * SLAB_BLOCKS)) 4096 32768 16380 slabSize 8192 compression on"; }
# grow TARGET SLABS [OPTION OF SUSPEND]
grow() { dmsetup load v --table "$(line "$1" "$2")" && dmsetup suspend ${3:+"$3"} v && dmsetup resume v; }
# not_grown WHY SLABS: the table is refused, and the volume goes on.
not_grown() {
	dmesg -c >/dev/null
	if dmsetup load v --table "$(line rvdo "$2")" 2>/dev/null; then fail "accepted: $2 slabs"; fi
	dmesg | grep -qF -- "$1" || fail "no '$1' in: $(dmesg | tail -3)"
	check holds /dev/mapper/v $model
}

case_begin full
need dmsetup create v --table "$(line rvdo 2)"
blocks 15000 growth 0 >/tmp/case/data
truncate -s 59M $model
check put /tmp/case/data /dev/mapper/v 0 $model
blocks 4096 more 0 >/tmp/case/more
put /tmp/case/more /dev/mapper/v 64 2>/dev/null && fail "16 MiB more than there is room for"
check blkdiscard --offset $((64 << 20)) --length $((16 << 20)) /dev/mapper/v
check holds /dev/mapper/v $model

case_begin refused
not_grown "the device is too small" 3
not_grown "the device is smaller than the table line says" 500
stays_normal v

case_begin grown
check grow rvdo 7
same "blocks" "$(stat_of v physicalBlocks)" $((VOLUME_OVERHEAD_BLOCKS + 7 * SLAB_BLOCKS))
dmesg | grep -q 'physical block count was' || fail "nothing about it in the log"
check holds /dev/mapper/v $model
# What was there is still known: a copy takes no room.
before=$(stat_of v dataBlocksUsed)
check put /tmp/case/data /dev/mapper/v 128
same "blocks in use after a copy" "$(stat_of v dataBlocksUsed)" "$before"
truncate -s 80M $model
check put /tmp/case/more /dev/mapper/v 64 $model
check holds /dev/mapper/v $model
check dmsetup remove v
check audit "$disk"

case_begin by-both-drivers
need dmsetup create v --table "$(line vdo 7)"
check holds /dev/mapper/v $model
check grow vdo 12
check dmsetup remove v
need dmsetup create v --table "$(line rvdo 12)"
check holds /dev/mapper/v $model
fio --name=load --eta=never --filename=/dev/mapper/v --direct=1 --ioengine=libaio --iodepth=16 --rw=randrw --bs=4k --offset=256M \
	--size=32M --verify=crc32c --verify_fatal=1 --loops=10000 --time_based --runtime=7200 --output=/tmp/fio.log &
load=$!
check grow rvdo 17
check grow rvdo 22 --noflush
check kill -0 $load
kill -INT $load
wait $load
same "errors of fio" "$(grep -cE 'err= *[1-9]|verify:' /tmp/fio.log)" 0
check holds /dev/mapper/v $model
stays_normal v
check dmsetup remove v
check audit "$disk"
need dmsetup create v --table "$(line vdo 22)"
check holds /dev/mapper/v $model
check dmsetup remove v
check audit "$disk"

case_begin device-fails
# below TARGET: the disk, or one that fails.
below() { dmsetup load below --table "0 $(sectors "$disk") $1" && dmsetup suspend below && dmsetup resume below; }
whole="linear $disk 0"
need dmsetup create below --table "0 $(sectors "$disk") $whole"
need test -b /dev/mapper/below
on_below() { line rvdo "$1" | sed "s,$disk,/dev/mapper/below,"; }
need dmsetup create v --table "$(on_below 22)"
same algorithm "$(compress_stat_of v algorithm)" lz4
need dmsetup load v --table "$(on_below 27) compressionType lz4hc"
check dmsetup suspend v
check below error
dmsetup resume v 2>/tmp/case/resume && fail "resumed without a device"
cat /tmp/case/resume
check below "$whole"
# All that the table asks for is still asked for.
check dmsetup resume v
same blocks "$(stat_of v physicalBlocks)" $((VOLUME_OVERHEAD_BLOCKS + 27 * SLAB_BLOCKS))
same algorithm "$(compress_stat_of v algorithm)" lz4hc
check holds /dev/mapper/v $model
stays_normal v
check dmsetup remove v
check dmsetup remove below
check audit "$disk"
check rmmod rvdo dm-vdo
