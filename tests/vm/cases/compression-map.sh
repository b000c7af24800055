#!/bin/bash
# The slab algorithm map: an in-tree volume gets it with the upgrade; it agrees with the headers of the blocks whatever is written
# and however the volume ends; the way back needs no look at the blocks, and the in-tree driver goes on with what it finds.
. /job/lib.sh
. /job/volume.sh
. /job/compression.sh

disk=$(blank_disk /dev/vda)
model=/tmp/case/model
mib=256
mkdir -p /tmp/case
need modprobe dm-vdo
modprobe -a lz4 deflate zstd
need load rvdo
line() { table rvdo "$disk" $mib 4096 compression on "$@"; }
# write_part N: one more part of what the model has, and all of it reads back.
write_part() {
	blocks 512 "map $1" 20 compressible >/tmp/case/part
	check put /tmp/case/part /dev/mapper/v "$((2 * $1))" $model
	check holds /dev/mapper/v $model
}

# saved: the volume ends; what it counted is what is there.
saved() {
	local before
	before=$(counted v)
	stays_normal v
	check dmsetup remove v
	same "blocks by format" "$(formats_on_disk "$disk")" "$before"
	echo "$before"
}
no_driver_takes_it() {
	if dmsetup create v --table "$(table vdo "$disk" $mib 4096)" 2>/dev/null; then
		fail "the in-tree driver took the volume"
		dmsetup remove v
	fi
	dmesg | grep -q "version mismatch" || fail "no reason in: $(dmesg | tail -3)"
	if vdoaudit "$disk" >/tmp/audit.log 2>&1; then fail "vdoaudit took the volume"; fi
}

case_begin in-tree-volume-gets-its-map
need format "$disk" $mib
truncate -s 40M $model
need start vdo v "$disk" $mib 4096 compression on
blocks 2048 lz4 30 compressible >/tmp/case/part
check put /tmp/case/part /dev/mapper/v 0 $model
check drop /dev/mapper/v 3 1 $model
check dmsetup remove v
check audit "$disk"
need dmsetup create v --table "$(line)"
same "no map" "$(blocks_of v lz4)" ""
check grep -q "slab algorithm map" <(ask v upgrade check)
check ask v upgrade
same volume "$(compress_stat_of v volume)" "67.1 0x00030001"
[ "$(blocks_of v lz4)" -gt 50 ] || fail "blocks of before are not counted: $(counted v)"
check holds /dev/mapper/v $model
saved
no_driver_takes_it

case_begin mixed-formats
need dmsetup create v --table "$(line compressionType deflate)"
check holds /dev/mapper/v $model
write_part 5
check ask v compression-type zstd
write_part 6
check ask v compression-type lz4
write_part 7
for format in lz4 zstd deflate; do
	[ "$(blocks_of v $format)" -gt 20 ] || fail "no blocks of $format: $(counted v)"
done
check drop /dev/mapper/v 11 2 $model
saved

case_begin dirty-volumes
# Taken away without a save: what was flushed is there, and so is what kind of block it is in.
need dmsetup create v --table "$(line compressionType zstd)"
write_part 8
check ask v compression-type deflate
write_part 9
check dmsetup suspend --noflush v
check dmsetup remove v
need dmsetup create v --table "$(line compressionType lz4)"
check holds /dev/mapper/v $model
write_part 10
until [ "$(mode_of v)" != recovering ]; do sleep 0.2; done
saved

case_begin way-back
need dmsetup create v --table "$(line compressionType lz4)"
dmesg -c >/dev/null
if ask v downgrade 2>/dev/null; then fail "downgraded with $(counted v)"; fi
dmesg | grep -q "$(($(blocks_of v zstd) + $(blocks_of v deflate))) blocks are in a format" ||
	fail "not that many blocks in the way: $(dmesg | tail -2)"
dd if=$model of=/tmp/case/rest bs=1M skip=8 count=32 status=none
check blkdiscard --offset $((8 << 20)) --length $((32 << 20)) /dev/mapper/v
check put /tmp/case/rest /dev/mapper/v 8
check ask v downgrade
same volume "$(compress_stat_of v volume)" 67.0
same "no map" "$(blocks_of v lz4)" ""
check holds /dev/mapper/v $model
check dmsetup remove v
check audit "$disk"
need start vdo v "$disk" $mib 4096 compression on
check holds /dev/mapper/v $model
write_part 11
check dmsetup remove v
check audit "$disk"

case_begin and-there-again
need dmsetup create v --table "$(line upgrade on compressionType deflate)"
check holds /dev/mapper/v $model
write_part 12
saved
check rmmod rvdo
check rmmod dm-vdo
