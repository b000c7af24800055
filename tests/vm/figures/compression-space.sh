#!/bin/bash
# Space that the data of the second disk takes, with each compressor and with the in-tree driver. Not a test: run it by hand with
#   scripts/vm-run --module rvdo.ko --module tests/modules/fake_iaa/fake_iaa.ko --disk EMPTY:10G --disk DATA tests/vm/figures/compression-space.sh
#
# Once as programs do it, with a flush right behind the last write, and once with a flush after everything has been packed: what is
# still being compressed when a flush arrives is stored as it is, and how much that is depends on the speed of the machine.
. /job/lib.sh
. /job/volume.sh
. /job/compression.sh

disk=/dev/vda
data=/dev/vdb
bytes=$(blockdev --getsize64 $data)
mib=$(((bytes >> 20) + 16))
need modprobe dm-vdo
modprobe -a lz4 lz4hc deflate zstd
need load rvdo
need load fake_iaa

# measure NAME TARGET OPTION...: two lines of the table.
measure() {
	local name=$1 target=$2 when begin used fragments blocks
	shift 2
	case_begin "$name"
	for when in at-once later; do
		blank_disk $disk >/dev/null
		need format "$disk" $mib
		need start "$target" v "$disk" $mib 4096 compression on "$@"
		begin=$(seconds)
		check dd if=$data of=/dev/mapper/v bs=1M iflag=direct oflag=direct status=none
		[ $when = at-once ] || all_packed v
		check sync /dev/mapper/v
		used=$(stat_of v dataBlocksUsed)
		fragments=$(stat_of v compressedFragmentsWritten)
		blocks=$(stat_of v compressedBlocksWritten)
		python3 -c 'import sys; n, w, t, u, f, c, b, e = *sys.argv[1:3], *map(float, sys.argv[3:]); print(f"SPACE {n:16} flush {w:8} {t:8.0f} blocks -> {u:8.0f}: saved {100 * (1 - u / t):5.2f} %, {f:.0f} fragments in {c:.0f} blocks, {e - b:6.1f} s to write")' \
			"$name" $when $((bytes / 4096)) "$used" "$fragments" "$blocks" "$begin" "$(seconds)"
		check cmp -n "$bytes" $data /dev/mapper/v
		[ "$target" = vdo ] || { ask v compress-stats | grep -o "driver : [^,]*\|ratio : [^,]*\|incompressible : [^,]*" | head -3 | tr '\n' ' ' && echo; }
		check dmsetup remove v
	done
}
measure in-tree-lz4 vdo
measure lz4 rvdo
measure lz4:8 rvdo compressionType lz4:8
measure lz4hc rvdo compressionType lz4hc
measure fake-deflate-iaa rvdo upgrade on compressionType deflate-iaa decompressAccelerators none
measure deflate rvdo upgrade on compressionType deflate-generic
measure zstd rvdo upgrade on compressionType zstd
check rmmod fake_iaa
check rmmod rvdo
check rmmod dm-vdo
