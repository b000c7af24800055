#!/bin/bash
# A file system on a volume as lvcreate makes it, an archive written and read with dd, and what compress-stats says then: LZ4 beside
# deflate-iaa, deduplication off and on; and the same without the engine, with one that vanishes and one that is taken away half-way.
#   scripts/vm-run --module rvdo.ko --module tests/modules/fake_iaa/fake_iaa.ko --disk EMPTY:10G --disk ARCHIVE tests/vm/figures/compress-stats.sh
# Without an archive on a second disk the guest's own files are one.
. /job/lib.sh
. /job/volume.sh
. /job/compression.sh

disk=/dev/vda
archive=/dev/vdb
mib=1024
mkdir -p /tmp/case/mount
modprobe -a lz4 deflate ext4
need load rvdo
need load fake_iaa
if [ ! -b $archive ] || [ "$(blockdev --getsize64 $archive)" -gt $((200 << 20)) ]; then
	archive=/tmp/case/archive
	tar -C /usr -cf - bin lib 2>/dev/null | head -c $((80 << 20)) >$archive
fi
bytes=$(($(blockdev --getsize64 $archive 2>/dev/null || stat -c %s $archive) >> 20 << 20))
# The options that lvcreate gives, and ours.
line() { table rvdo "$disk" $mib 4096 maxDiscard 1500 ack 1 bio 4 bioRotationInterval 64 cpu 2 hash 1 logical 1 physical 1 compression on "$@"; }
# timed COMMAND...: prints the seconds.
timed() {
	local begin
	begin=$(seconds)
	check "$@" || return
	python3 -c 'import sys; print("%.1f" % (float(sys.argv[2]) - float(sys.argv[1])))' "$begin" "$(seconds)"
}
copy() { dd if=$archive of=/tmp/case/mount/archive bs=1M count=$((bytes >> 20)) iflag=direct oflag=direct status=none; }
read_back() { dd if=/tmp/case/mount/archive of=/dev/null bs=1M iflag=direct status=none; }
begin_volume() { # OPTION...
	blank_disk $disk >/dev/null
	need format $disk $mib
	need dmsetup create v --table "$(line upgrade on "$@")"
	need mkfs.ext4 -q -E nodiscard /dev/mapper/v
	need mount /dev/mapper/v /tmp/case/mount
}
end_volume() { # WHAT WRITE_SECONDS
	local read_s used
	read_s=$(timed read_back)
	check cmp -n "$bytes" $archive /tmp/case/mount/archive
	check umount /tmp/case/mount
	used=$(stat_of v dataBlocksUsed)
	stays_normal v
	same "unreadable fragments" "$(compress_stat_of v decompress_errors)" 0
	echo "STATS $1: $((bytes >> 20)) MiB written in $2 s, read in $read_s s, $used data blocks, ratio $(compress_stat_of v ratio), $(compress_stat_of v driver), fallbacks $(compress_stat_of v fallbacks), errors $(compress_stat_of v errors)"
	ask v compress-stats
	check dmsetup remove v
	check e2fsck_again
}
# The file system is sound in the next life of the volume.
e2fsck_again() {
	need dmsetup create v --table "$(line)"
	e2fsck -fn /dev/mapper/v >/tmp/case/fsck 2>&1 || { cat /tmp/case/fsck; return 1; }
	dmsetup remove v
}

for deduplication in off on; do
	for driver in lz4 deflate-iaa; do
		case_begin "$driver-deduplication-$deduplication"
		begin_volume deduplication $deduplication compressionType $driver
		end_volume "$driver, deduplication $deduplication" "$(timed copy)"
	done
done

# half_way NAME COMMAND...: happens while the archive is being written.
half_way() {
	local name=$1 begin writer written
	shift
	case_begin "$name"
	begin_volume compressionType deflate-iaa
	begin=$(seconds)
	copy &
	writer=$!
	until [ "$(figure v deflate-iaa calls)" -gt $((bytes / 4096 / 3)) ]; do sleep 0.1; done
	check "$@"
	check wait $writer
	written=$(python3 -c 'import sys; print("%.1f" % (float(sys.argv[2]) - float(sys.argv[1])))' "$begin" "$(seconds)")
	[ "$(figure v deflate-generic calls)" -gt 0 ] || fail "software did nothing"
	end_volume "$name" "$written"
}
half_way vanishes-half-way engine gone=1
engine gone=0
taken_away() { ask v accelerators none && eventually rmmod fake_iaa 2>/dev/null; }
half_way disabled-and-unloaded-half-way taken_away

case_begin absent
begin_volume compressionType deflate-iaa
same driver "$(compress_stat_of v driver)" deflate-generic
same requested "$(compress_stat_of v requested)" deflate-iaa
end_volume "deflate-iaa asked for and absent" "$(timed copy)"
check rmmod rvdo
