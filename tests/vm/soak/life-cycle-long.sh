#!/bin/bash
# The life cycle with more rounds: 50 suspends of each kind under load, 100 volumes made and removed.
. /job/lib.sh
. /job/volume.sh

need load rvdo
disk=$(blank_disk /dev/vda)
need format "$disk" 4096
blocks 256 long 0 >/tmp/case.blocks

case_begin suspend-under-load
need start rvdo v "$disk" 4096 4096 compression on
fio --name=load --eta=never --filename=/dev/mapper/v --direct=1 --ioengine=libaio --iodepth=16 --numjobs=2 --rw=randrw --bs=4k \
	--size=32M --offset_increment=32M --verify=crc32c --verify_fatal=1 --fsync=32 --loops=10000 --time_based --runtime=7200 \
	--buffer_compress_percentage=60 --output=/tmp/fio.log &
load=$!
while [ "$(stat_of v logicalBlocksUsed)" -lt 64 ]; do kill -0 $load || break; done
for round in $(seq 50); do
	check dmsetup suspend v
	same "in flight in round $round" "$(stat_of v currentVIOsInProgress)" 0
	if [ $((round % 10)) = 0 ]; then check audit "$disk"; fi
	check dmsetup resume v
	check dmsetup suspend --noflush v
	same "in flight in round $round, no flush" "$(stat_of v currentVIOsInProgress)" 0
	check dmsetup resume v
done
check kill -0 $load
kill -INT $load
wait $load
same "errors of fio" "$(grep -cE 'err= *[1-9]|verify:' /tmp/fio.log)" 0 || tail -30 /tmp/fio.log
stays_normal v
check dmsetup remove v
check audit "$disk"

case_begin create-remove
round_of() {
	start rvdo v "$disk" 4096 4096 compression on || return
	dd if=/tmp/case.blocks of=/dev/mapper/v bs=64k count=2 seek=$((1024 + $1)) oflag=direct status=none
	dmsetup remove v
}
slabs_kib() { awk '/^SUnreclaim:/ { print $2 }' /proc/meminfo; }
for round in 1 2 3; do check round_of "$round"; done
before=$(memory_kib)
slabs=$(slabs_kib)
for round in $(seq 100); do check round_of "$round"; done
lost=$(($(memory_kib) - before))
lost_slabs=$(($(slabs_kib) - slabs))
echo "after 100 rounds: $lost KiB more memory in use, $lost_slabs KiB more in slab caches"
[ $lost -lt 8192 ] || fail "$lost KiB more memory in use"
[ $lost_slabs -lt 4096 ] || fail "$lost_slabs KiB more in slab caches"
same references "$(cat /sys/module/rvdo/refcnt)" 0
check audit "$disk"
check rmmod rvdo
