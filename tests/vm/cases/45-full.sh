#!/bin/bash
# A volume that promises more than it has: it says so when it is full, and loses nothing.
. /job/lib.sh
. /job/volume.sh

need load rvdo
modprobe ext4

# fill DIRECTORY SEED: files of data that does not compress until there is no space; prints how many KiB.
fill() {
	local n=0
	while noise 8388608 "$2 $n" >"$1/$n" 2>/dev/null; do n=$((n + 1)); done
	sync -f "$1" 2>/dev/null || sync
	du -sk "$1" | cut -f1
}
quiet() { "$@" >/tmp/quiet.log 2>&1 || { tail -20 /tmp/quiet.log; return 1; }; }

case_begin no-space-below
# 62 MiB of data blocks below 512 MiB: the device says so, and goes on reading.
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
