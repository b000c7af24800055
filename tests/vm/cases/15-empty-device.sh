#!/bin/bash
# A device whose first block is empty becomes a volume when its table is loaded, as with the in-tree driver.
. /job/lib.sh
. /job/volume.sh

need load rvdo
need modprobe dm-vdo
disk=$(blank_disk /dev/vda)
blocks 1024 empty 20 compressible >/tmp/case.data
# layout DISK: where everything is; fails when the tool does.
layout() { vdolistmetadata "$1" >/tmp/layout && sort -n /tmp/layout; }

case_begin formatted
noise 1048576 old | dd of="$disk" bs=4096 seek=1 status=none conv=notrunc
need start rvdo v "$disk" 8192 4096 slabSize 8192 compression on
check put /tmp/case.data /dev/mapper/v 0
check holds /dev/mapper/v /tmp/case.data
check dmsetup remove v
check audit "$disk"
need layout "$disk" >/tmp/ours
check test -s /tmp/ours

case_begin for-both-drivers
need start vdo v "$disk" 8192 4096
check holds /dev/mapper/v /tmp/case.data
# Its index is made by the first user of a volume, and rvdo makes none.
check ask v index-create
until [ "$(dmsetup status v | cut -d' ' -f7)" = online ]; do check test -b /dev/mapper/v || break; done
check put /tmp/case.data /dev/mapper/v 16
before=$(stat_of v dataBlocksUsed)
check put /tmp/case.data /dev/mapper/v 32
same "blocks in use after a second copy" "$(stat_of v dataBlocksUsed)" "$before"
check dmsetup remove v
check audit "$disk"
need start rvdo v "$disk" 8192 4096
check holds /dev/mapper/v /tmp/case.data
check dmsetup remove v

case_begin as-vdoformat-does
need format "$disk" 8192
need layout "$disk" >/tmp/theirs
check cmp /tmp/ours /tmp/theirs
blank_disk "$disk" >/dev/null
need start vdo v "$disk" 8192 4096 slabSize 8192
check dmsetup remove v
need layout "$disk" >/tmp/theirs
check cmp /tmp/ours /tmp/theirs

case_begin with-another-index
blank_disk "$disk" >/dev/null
need start rvdo v "$disk" 8192 4096 slabSize 32768 indexMemory 0.5
check dmsetup remove v
need layout "$disk" >/tmp/ours
need vdoformat --force --logical-size=8192M --slab-bits=15 --uds-memory-size=0.5 "$disk" >/tmp/vdoformat.log
need layout "$disk" >/tmp/theirs
check cmp /tmp/ours /tmp/theirs

case_begin lost-geometry
need start rvdo v "$disk" 8192 4096
check dmsetup remove v
dd if=/dev/zero of="$disk" bs=4096 count=1 oflag=direct status=none
refused "there is a super block" "$(table rvdo "$disk" 8192 4096)"
same "block 0" "$(head -c 4096 "$disk" | tr -d '\0' | wc -c)" 0

case_begin too-small
small=$(loop_disk 2G)
refused "the device is too small" "$(table rvdo "$small" 8192 4096)"
same "what was written" "$(tr -d '\0' <"$small" | wc -c)" 0
check rmmod rvdo dm-vdo
