#!/bin/bash
# A log of all that a volume writes, replayed to every flush of a user: what a disk with a volatile cache has when
# it loses its power there. At each the volume is recovered and holds what was flushed by then.
. /job/lib.sh
. /job/volume.sh

need modprobe -a dm-log-writes dm-snapshot lz4 deflate zstd
need load rvdo
seed=${SEED:-4}
echo "seed $seed"
mib=256
mkdir -p /tmp/case

# Small caches: a recovery at each mark allocates them.
small() { # DISK OPTION...
	echo "0 $((mib * 2048)) rvdo V4 $1 $physical 4096 4096 16380 maxDiscard 64 compression on ${*:2}"
}
# replayed ROUND MIDWAY AUDIT: a load of that round, then its log.
replayed() {
	local disk store
	need blkdiscard --force /dev/vdb
	need blkdiscard --force /dev/vda
	need dmsetup create log --table "0 $size log-writes /dev/vda /dev/vdb"
	need format /dev/mapper/log $mib
	need dmsetup create v --table "$(small /dev/mapper/log)"
	check python3 /job/tools/crash_writer.py /dev/mapper/v /tmp/case/record "$seed" "$1" --new --operations 60 --marks log ${2:+--midway "$2"}
	check python3 /job/tools/crash_verify.py /dev/mapper/v /tmp/case/record --keep
	check dmsetup remove v
	check dmsetup remove log
	disk=$(loop_disk $((size * 512)))
	store=$(loop_disk 2G)
	check python3 /job/tools/replay_marks.py /dev/vdb "$disk" "$store" "$seed" "$1" "$(small @)" --between "${BETWEEN:-20}" --audit "$3"
	losetup -d "$disk"
	losetup -d "$store"
	rm -f /tmp/case/disk.*
}
# The smallest disk that does: the log of its format is short.
physical=$((VOLUME_OVERHEAD_BLOCKS + 8 * SLAB_BLOCKS))
size=$((physical * 8))

case_begin original-format
replayed 1 "" 4

case_begin upgraded-under-load
replayed 2 "dmsetup message v 0 upgrade && dmsetup message v 0 compression-type deflate" 0

check rmmod rvdo
