#!/bin/bash
# File systems on small volumes: filled to the last block, emptied, trimmed, filled again.
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
check rmmod rvdo
