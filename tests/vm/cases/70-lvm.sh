#!/bin/bash
# LVM makes, uses and changes a volume with this driver as the target `vdo`.
. /job/lib.sh
. /job/volume.sh

need load rvdo register_vdo=1
modprobe ext4
blank_disk /dev/vda >/dev/null
quiet() { "$@" >/tmp/quiet.log 2>&1 || { cat /tmp/quiet.log; return 1; }; }
field() { lvs --noheadings -o "$2" "$1" 2>/dev/null | xargs; }

case_begin lvcreate
need quiet pvcreate -y /dev/vda
need quiet vgcreate vg /dev/vda
need quiet lvcreate -y --type vdo -n v0 -L 6G -V 10G vg/vpool
check test -b /dev/mapper/vg-v0
same "target" "$(dmsetup table vg-vpool-vpool | cut -d' ' -f3,4)" "vdo V4"
grep -q '^dm_vdo ' /proc/modules && fail "the in-tree driver was loaded"
same "segment" "$(field vg/v0 segtype)" vdo
same "mode" "$(field vg/vpool vdo_operating_mode)" normal
same "compression" "$(field vg/vpool vdo_compression_state)" online
same "index" "$(field vg/vpool vdo_index_state)" online

case_begin data
need quiet mkfs.ext4 -q -E nodiscard /dev/mapper/vg-v0
need mount /dev/mapper/vg-v0 /mnt
blocks 4096 lvm 30 compressible >/mnt/file
cp /mnt/file /mnt/copy
sync
sum=$(sha256sum </mnt/file)
used=$(field vg/vpool vdo_used_size)
saving=$(field vg/vpool vdo_saving_percent)
echo "used $used, saving $saving"
[ "${saving%.*}" -gt 20 ] || fail "saving is $saving"
check umount /mnt
same "vdostats" "$(vdostats vg-vpool-vpool | awk 'NR == 2 { print $1 }')" vg-vpool-vpool

case_begin lvchange
check quiet lvchange --compression n vg/vpool
same "compression" "$(field vg/vpool vdo_compression_state)" offline
[[ "$(dmsetup table vg-vpool-vpool)" == *"compression off"* ]] || fail "$(dmsetup table vg-vpool-vpool)"
check quiet lvchange --compression y vg/vpool
same "compression" "$(field vg/vpool vdo_compression_state)" online
check quiet lvchange --deduplication n vg/vpool
same "index" "$(field vg/vpool vdo_index_state)" offline
check quiet lvchange --deduplication y vg/vpool
same "index" "$(field vg/vpool vdo_index_state)" online

case_begin activation
check quiet lvchange -an vg/v0
check quiet vgchange -an vg
same "devices" "$(dmsetup ls | grep -c vg-)" 0
check quiet lvchange -ay vg/v0
need mount /dev/mapper/vg-v0 /mnt
same "file" "$(sha256sum </mnt/file)" "$sum"
same "copy" "$(sha256sum </mnt/copy)" "$sum"

case_begin lvextend
check quiet lvextend -L 12G vg/v0
check quiet resize2fs /dev/mapper/vg-v0
[ "$(df -Pk /mnt | awk 'NR == 2 { print $2 }')" -gt $((11 << 20)) ] || fail "$(df -Pk /mnt)"
same "file" "$(sha256sum </mnt/file)" "$sum"
check umount /mnt
check quiet e2fsck -fn /dev/mapper/vg-v0

case_begin lvextend-pool
before=$(stat_of vg-vpool-vpool physicalBlocks)
check quiet lvextend -L +3G vg/vpool
same "blocks more" $(($(stat_of vg-vpool-vpool physicalBlocks) - before)) $((3 << 18))
need mount /dev/mapper/vg-v0 /mnt
same "file" "$(sha256sum </mnt/file)" "$sum"
check cp /mnt/file /mnt/after
check umount /mnt

case_begin in-tree-activation
check quiet vgchange -an vg
check rmmod rvdo
check quiet lvchange -ay vg/v0
grep -q '^dm_vdo ' /proc/modules || check modprobe dm-vdo
need mount /dev/mapper/vg-v0 /mnt
same "file" "$(sha256sum </mnt/file)" "$sum"
same "file after the growth" "$(sha256sum </mnt/after)" "$sum"
check umount /mnt
check quiet vgchange -an vg
check rmmod dm-vdo
