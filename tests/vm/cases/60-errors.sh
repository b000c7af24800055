#!/bin/bash
# What cannot be used is refused, with a text that says why, and leaves nothing behind.
. /job/lib.sh
. /job/volume.sh

need load rvdo
disk=$(loop_disk 4G)
short=$(loop_disk 3G)
size=$((1024 * 2048))
physical=$(($(sectors "$disk") / 8))
need format "$disk" 1024

case_begin table-line
refused "Logical size must be a multiple of 4096" "0 $((size + 1)) rvdo V4 $disk $physical 4096 32768 16380"
refused "Logical size exceeds the maximum" "0 $(((1 << 43) + 8)) rvdo V4 $disk $physical 4096 32768 16380"
refused "Incorrect number of arguments" "0 $size rvdo"
refused "Unknown version number detected: \"V5\"" "0 $size rvdo V5 $disk $physical 4096 32768 16380"
refused "Unknown version number detected: \"V0\"" "0 $size rvdo V0 $disk $physical 4096 32768 16380"
refused "Incorrect number of arguments for version V4: 5, at least 6 needed" "0 $size rvdo V4 $disk $physical 4096 32768"
refused "Incorrect number of arguments for version V0" "0 $size rvdo $disk 4096"
refused "Invalid physical block count" "0 $size rvdo V4 $disk many 4096 32768 16380"
refused "Invalid logical block size: must be 512 or 4096" "0 $size rvdo V4 $disk $physical 1024 32768 16380"
refused "Invalid block map page cache size" "0 $size rvdo V4 $disk $physical 4096 0 16380"
refused "Invalid block map maximum age" "0 $size rvdo V4 $disk $physical 4096 32768 -1"
refused "the block map maximum age must be" "0 $size rvdo V4 $disk $physical 4096 32768 100000"
refused "must appear alone in table" "$(table rvdo "$disk" 1024 4096)
$size 8 zero"

case_begin options
option() { # WHY OPTION...
	local why=$1
	shift
	refused "$why" "0 $size rvdo V4 $disk $physical 4096 32768 16380 $*"
}
option "Odd number of optional arguments" compression
option "compression must be on or off, not \"ON\"" compression ON
option "deduplication must be on or off" deduplication 1
option "maxDiscard must be a number from 1 to 1048575" maxDiscard 0
option "maxDiscard must be a number from 1 to 1048575" maxDiscard 1048576
option "bio must be a number from 1 to 100" bio 0
option "cpu must be a number from 1 to 100" cpu 101
option "logical must be a number from 0 to 60" logical 61 physical 1 hash 1
option "physical must be a number from 0 to 16" logical 1 physical 17 hash 1
option "bioRotationInterval must be a number from 1 to 1024" bioRotationInterval 1025
option "counts must all be zero or all non-zero" logical 1 physical 0 hash 1
option "Insufficient block map cache for logical zones" logical 9 physical 1 hash 1
option "unknown option \"colour\"" colour blue
option "slabSize must be a power of two" slabSize 8191
option "indexMemory must be 0.25, 0.5, 0.75" indexMemory 0.3
option "compressionType must be <algorithm>[:<option>]" compressionType :3
option "needs the per-block algorithm field" compressionType deflate
option "needs the per-block algorithm field" compressionType zstd
option "must name an lz4, deflate or zstd driver" compressionType lzo
option "must name an lz4, deflate or zstd driver that this kernel has" compressionType no-such-driver
# An unknown option with a number is one of newer tools.
dmesg -c >/dev/null
need start rvdo v "$disk" 1024 4096 newOption 7
dmesg | grep -q 'unknown option "newOption"' || fail "nothing about the unknown option in the log"
check dmsetup remove v
need start rvdo v "$disk" 1024 4096 compressionType lz4hc compression on
same algorithm "$(compress_stat_of v algorithm)" lz4hc
check dmsetup remove v

case_begin devices
refused "unable to open storage device /dev/missing" "0 $size rvdo V4 /dev/missing $physical 4096 32768 16380"
refused "the device is too small: 1236309 blocks" "$(table rvdo "$short" 1024 4096)"
refused "the table line says" "0 $size rvdo V4 $disk $((physical - 8192)) 4096 32768 16380"
refused "the table line says" "0 $((size / 2)) rvdo V4 $disk $physical 4096 32768 16380"
need dmsetup create cut --table "0 $(($(sectors "$disk") - 8)) linear $disk 0"
need test -b /dev/mapper/cut
refused "the device is smaller than the volume on it" "0 $size rvdo V4 /dev/mapper/cut $physical 4096 32768 16380"
check dmsetup remove cut
need dmsetup create bad --table "0 $(sectors "$disk") error"
need test -b /dev/mapper/bad
refused "the device reported an I/O error" "0 $size rvdo V4 /dev/mapper/bad $physical 4096 32768 16380"
check dmsetup remove bad

case_begin nothing-left
before=$(memory_kib)
for _ in $(seq 20); do
	dmsetup create refused --table "0 $size rvdo V4 $disk $((physical - 8192)) 4096 32768 16380" 2>/dev/null && fail accepted
	dmsetup create refused --table "0 $size rvdo V4 $disk $physical 4096 32768 100000" 2>/dev/null && fail accepted
	dmsetup create refused --table "0 $size rvdo V4 $disk $physical 4096 32768 16380 compression maybe" 2>/dev/null && fail accepted
done
lost=$(($(memory_kib) - before))
[ $lost -lt 4096 ] || fail "$lost KiB more memory in use after 60 refused tables"
same holders "$(find "/sys/block/$(basename "$disk")/holders" -mindepth 1 | wc -l)" 0

case_begin name-taken
need modprobe dm-vdo
check rmmod rvdo
load rvdo register_vdo=1 2>/dev/null && fail "both modules are vdo"
check rmmod dm-vdo
check load rvdo register_vdo=1
same "targets" "$(dmsetup targets | grep -E '^r?vdo ' | awk '{ print $1, $2 }' | sort | xargs)" "rvdo v9.2.0 vdo v9.2.0"
check rmmod rvdo
