#!/bin/bash
# The guest itself: its programs work and the stock dm-vdo runs in it, so that a
# failure in a later case is ours.
. /job/lib.sh

case_begin programs
for program in lvm dmsetup fio vdoformat vdostats vdoaudit vdodumpmetadata mkfs.ext4 mkfs.xfs strace; do
	check command -v "$program" >/dev/null
done
same "python" "$(python3 -c 'print(6 * 7)')" 42

case_begin stock-vdo
disk=$(loop_disk 6G)
need modprobe dm-vdo
check vdoformat --logical-size=10G --slab-bits=13 --uds-memory-size=0.25 "$disk"
need dmsetup create stock --table "0 $((10 * 2097152)) vdo V4 $disk $((6 * 262144)) 4096 32768 16380 compression on"
noise 8388608 seed >/tmp/case/noise
check dd if=/tmp/case/noise of=/dev/mapper/stock bs=1M oflag=direct conv=fsync status=none
check cmp -n 8388608 /tmp/case/noise /dev/mapper/stock
check dmsetup status stock
check dmsetup remove stock
check rmmod dm-vdo
