#!/bin/bash
# Volumes that were not shut down, or that are read-only, or marked for a rebuild. That a volume is
# left as it is on the disk is done by removing it while it is suspended without a flush; the power
# is cut in tests/vm/power-cut.
. /job/lib.sh
. /job/volume.sh

need load rvdo
need modprobe dm-vdo
disk=$(slab_disk 8)
need format "$disk" 1024
model=/tmp/case/model
truncate -s 16M $model
for part in 1 2 3; do blocks 1024 "recovery $part" 20 compressible >/tmp/case/part$part; done

# abandon: the device goes, and nothing is saved.
abandon() { check dmsetup suspend --noflush v && check dmsetup remove v; }
state_on_disk() { dd if="$disk" bs=4096 skip=679128 count=1 status=none | od -An -tu4 -j40 -N4 | xargs; }
until_normal() {
	local _
	for _ in $(seq 600); do
		if [ "$(mode_of v)" != recovering ]; then return; fi
		sleep 0.1
	done
	fail "recovering for a minute"
}

case_begin dirty-ours
need start rvdo v "$disk" 1024 4096 compression on
check put /tmp/case/part1 /dev/mapper/v 0 $model
check put /tmp/case/part2 /dev/mapper/v 4 $model
check drop /dev/mapper/v 1 1 $model
abandon
same "state" "$(state_on_disk)" 0
need start rvdo v "$disk" 1024 4096 compression on
check holds /dev/mapper/v $model
until_normal
stays_normal v
check holds /dev/mapper/v $model
same "recoveries" "$(stat_of v completeRecoveries)" 1
check dmsetup remove v
check audit "$disk"

case_begin dirty-in-tree
need start vdo v "$disk" 1024 4096 compression on
check put /tmp/case/part3 /dev/mapper/v 8 $model
check put /tmp/case/part1 /dev/mapper/v 2 $model
abandon
same "state" "$(state_on_disk)" 0
need start rvdo v "$disk" 1024 4096 compression on
check put /tmp/case/part2 /dev/mapper/v 12 $model
until_normal
stays_normal v
check holds /dev/mapper/v $model
check dmsetup remove v
check audit "$disk"

case_begin dirty-ours-for-the-in-tree-driver
need start rvdo v "$disk" 1024 4096 compression on
check put /tmp/case/part3 /dev/mapper/v 0 $model
check put /tmp/case/part2 /dev/mapper/v 5 $model
abandon
need start vdo v "$disk" 1024 4096 compression on
check holds /dev/mapper/v $model
until_normal
check dmsetup remove v
check audit "$disk"

case_begin read-only
check vdoreadonly "$disk"
same "state" "$(state_on_disk)" 3
need start rvdo v "$disk" 1024 4096 compression on
same "mode" "$(mode_of v)" read-only
check holds /dev/mapper/v $model
dd if=/tmp/case/part1 of=/dev/mapper/v bs=4k count=1 oflag=direct status=none 2>/dev/null && fail "written"
blkdiscard --length 4096 /dev/mapper/v 2>/dev/null && fail "discarded"
check holds /dev/mapper/v $model
check dmsetup remove v
same "state" "$(state_on_disk)" 3

case_begin rebuild
check vdoforcerebuild "$disk"
need start rvdo v "$disk" 1024 4096 compression on
until_normal
stays_normal v
check holds /dev/mapper/v $model
check put /tmp/case/part1 /dev/mapper/v 10 $model
check holds /dev/mapper/v $model
check dmsetup remove v
check audit "$disk"
need start vdo v "$disk" 1024 4096 compression on
check holds /dev/mapper/v $model
check dmsetup remove v
check rmmod dm-vdo
check rmmod rvdo
