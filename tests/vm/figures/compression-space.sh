#!/bin/bash
# Space that the data of the second disk takes, with each compressor and with the in-tree driver. Not a test: run it by hand with
#   scripts/vm-run --module rvdo.ko --module tests/modules/fake_iaa/fake_iaa.ko --disk EMPTY:10G --disk DATA tests/vm/figures/compression-space.sh
. /job/lib.sh
. /job/volume.sh

disk=/dev/vda
data=/dev/vdb
bytes=$(blockdev --getsize64 $data)
mib=$(((bytes >> 20) + 16))
need modprobe dm-vdo
modprobe -a lz4 lz4hc deflate zstd
need load rvdo
need load fake_iaa

# measure NAME TARGET OPTION...: a line of the table.
measure() {
	local name=$1 target=$2 begin used
	shift 2
	case_begin "$name"
	blank_disk $disk >/dev/null
	need format "$disk" $mib
	need start "$target" v "$disk" $mib 4096 compression on "$@"
	begin=$(seconds)
	check dd if=$data of=/dev/mapper/v bs=1M iflag=direct oflag=direct conv=fsync status=none
	used=$(stat_of v dataBlocksUsed)
	python3 -c 'import sys; n, t, u, b, e = sys.argv[1], *map(float, sys.argv[2:]); print(f"SPACE {n:16} {t:8.0f} blocks -> {u:8.0f}: saved {100 * (1 - u / t):5.1f} %, {e - b:6.1f} s to write")' \
		"$name" $((bytes / 4096)) "$used" "$begin" "$(seconds)"
	check cmp -n "$bytes" $data /dev/mapper/v
	[ "$target" = vdo ] || ask v compress-stats | grep -o "driver : [^,]*\|ratio : [^,]*\|incompressible : [^,]*" | head -3 | tr '\n' ' '
	check dmsetup remove v
}
measure in-tree-lz4 vdo
measure lz4 rvdo
measure lz4:8 rvdo compressionType lz4:8
measure lz4hc rvdo compressionType lz4hc
measure fake-deflate-iaa rvdo upgrade on compressionType deflate-iaa decompressAccelerators none
measure deflate rvdo upgrade on compressionType deflate-generic
measure zstd rvdo upgrade on compressionType zstd
