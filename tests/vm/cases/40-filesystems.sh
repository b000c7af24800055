#!/bin/bash
# File systems on small volumes: filled to the last block, emptied, trimmed, filled again; and a
# volume that has less space than the file system believes.
. /job/lib.sh
. /job/volume.sh

need load rvdo
modprobe -a ext4 xfs

# fill DIRECTORY SEED: files of data that does not compress until there is no space; prints how many KiB.
fill() {
	local n=0
	while noise 8388608 "$2 $n" >"$1/$n" 2>/dev/null; do n=$((n + 1)); done
	sync -f "$1" 2>/dev/null || sync
	du -sk "$1" | cut -f1
}
full() { [ "$(df -Pk /mnt | awk 'NR == 2 { print $4 }')" -lt 2048 ] || fail "$(df -Pk /mnt | tail -1)"; }
sums() { (cd /mnt && find . -type f | sort | xargs -d '\n' sha256sum); }
quiet() { "$@" >/tmp/quiet.log 2>&1 || { tail -20 /tmp/quiet.log; return 1; }; }

# round_trip MKFS CHECKER...: all of it on a file system that the volume has the space for.
round_trip() {
	local mib=$1 make=$2 first second
	shift 2
	need format "$disk" "$mib"
	need start rvdo v "$disk" "$mib" 4096 compression on maxDiscard 1024
	# shellcheck disable=SC2086 # a command and its options
	check quiet $make /dev/mapper/v
	need mount /dev/mapper/v /mnt
	first=$(fill /mnt one)
	full
	first_blocks=$(stat_of v dataBlocksUsed)
	rm -r /mnt/[0-9]*
	# xfs frees the blocks of removed files in the background: the unmount waits for it.
	check umount /mnt
	need mount /dev/mapper/v /mnt
	check fstrim /mnt
	# xfs does not wait for its discards; a suspend does.
	check dmsetup suspend v
	check dmsetup resume v
	after_blocks=$(stat_of v dataBlocksUsed)
	[ "$after_blocks" -lt $((first_blocks / 4)) ] || fail "trimming left $after_blocks of $first_blocks blocks"
	second=$(fill /mnt two)
	full
	[ "$second" -ge $((first * 9 / 10)) ] || fail "$first KiB the first time, $second the second"
	echo "filled $first KiB ($first_blocks blocks), trimmed to $after_blocks, filled $second KiB"
	sums >/tmp/sums
	check umount /mnt
	check quiet "$@" /dev/mapper/v
	stays_normal v
	check dmsetup remove v
	check audit "$disk"
	need start rvdo v "$disk" "$mib" 4096 compression on
	need mount /dev/mapper/v /mnt
	same "files" "$(sums | sha256sum)" "$(sha256sum </tmp/sums)"
	check umount /mnt
	check quiet "$@" /dev/mapper/v
	check dmsetup remove v
	check audit "$disk"
}

case_begin ext4
disk=$(slab_disk 6)
round_trip 128 "mkfs.ext4 -q" e2fsck -fn

case_begin xfs
xfs_disk=$(slab_disk 12)
losetup -d "$disk"
disk=$xfs_disk
# The smallest that mkfs.xfs makes is 300 MiB.
round_trip 304 "mkfs.xfs -q" xfs_repair -n

case_begin no-space-below
# 62 MiB of data blocks below 512 MiB: the device says so, and goes on reading.
losetup -d "$disk"
disk=$(slab_disk 2)
need format "$disk" 512
need start rvdo v "$disk" 512 4096 compression on maxDiscard 1024
blocks 18000 full 0 >/tmp/case/model
dd if=/tmp/case/model of=/dev/mapper/v bs=1M oflag=direct status=none 2>/tmp/dd.log && fail "18000 blocks on 2 slabs"
check grep -q "No space left on device" /tmp/dd.log
written=$(stat_of v logicalBlocksUsed)
echo "written: $written of $((2 * SLAB_DATA_BLOCKS)), $(stat_of v dataBlocksUsed) of them data"
[ "$written" -gt $((2 * SLAB_DATA_BLOCKS - 200)) ] || fail "full after $written blocks"
check [ "$(stat_of v noSpaceErrorCount)" -gt 0 ]
stays_normal v
# The last request went in only in part.
written=$((written / 256 * 256))
truncate -s $((written * 4096)) /tmp/case/model
check cmp /tmp/case/model <(dd if=/dev/mapper/v bs=1M count=$((written / 256)) iflag=direct status=none)
# Duplicates and zeroes need no space.
check dd if=/tmp/case/model of=/dev/mapper/v bs=4k count=64 skip=$((written - 64)) oflag=direct conv=notrunc status=none
dd if=/tmp/case/model of=/tmp/case/model bs=4k count=64 skip=$((written - 64)) conv=notrunc status=none
check dd if=/dev/zero of=/dev/mapper/v bs=1M seek=1 count=1 oflag=direct conv=fsync status=none
dd if=/dev/zero of=/tmp/case/model bs=1M seek=1 count=1 conv=notrunc status=none
check cmp /tmp/case/model <(dd if=/dev/mapper/v bs=1M count=$((written / 256)) iflag=direct status=none)
# What is discarded can be had again.
check drop /dev/mapper/v 10 20 /tmp/case/model
blocks 5120 again 0 >/tmp/case/again
check put /tmp/case/again /dev/mapper/v 10 /tmp/case/model
check cmp /tmp/case/model <(dd if=/dev/mapper/v bs=1M count=$((written / 256)) iflag=direct status=none)
stays_normal v
check dmsetup remove v
check audit "$disk"
need start rvdo v "$disk" 512 4096 compression on
check cmp /tmp/case/model <(dd if=/dev/mapper/v bs=1M count=$((written / 256)) iflag=direct status=none)
check dmsetup remove v

case_begin file-system-without-space-below
# The file system loses data that it could not write, as on any thin volume; the volume does not.
need format "$disk" 512
need start rvdo v "$disk" 512 4096 compression on maxDiscard 1024
# Blocks behind the file system are given up later, so that fsck has something to write to.
noise 8388608 reserve >/tmp/case/reserve
check put /tmp/case/reserve /dev/mapper/v 480
check quiet mkfs.ext4 -q -E nodiscard /dev/mapper/v 448M
need mount /dev/mapper/v /mnt
noise 33554432 kept >/mnt/kept
check sync -f /mnt/kept
fill /mnt lost >/dev/null 2>&1
umount /mnt
check [ "$(stat_of v noSpaceErrorCount)" -gt 0 ]
stays_normal v
check blkdiscard --force --offset $((480 << 20)) --length $((8 << 20)) /dev/mapper/v
e2fsck -fy /dev/mapper/v >/tmp/quiet.log 2>&1
check [ $? -lt 4 ]
need mount /dev/mapper/v /mnt
same "the file from before" "$(sha256sum </mnt/kept)" "$(noise 33554432 kept | sha256sum)"
rm -rf /mnt/[0-9]*
sync
check fstrim /mnt
check cp /mnt/kept /mnt/copy
check umount /mnt
check quiet e2fsck -fn /dev/mapper/v
check dmsetup remove v
check audit "$disk"
check rmmod rvdo
