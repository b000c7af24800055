#!/bin/bash
# A volume from its format to its end: what is written is read again, duplicates and zeroes take no
# space, and what was saved is clean to the tools.
. /job/lib.sh
. /job/volume.sh

need load rvdo
disk=$(loop_disk 4G)
model=/tmp/case/model

case_begin new-volume
need format "$disk" 8192
need start rvdo v "$disk" 8192 4096 compression on
same "status" "$(dmsetup status v | cut -d' ' -f3-8)" "rvdo /dev/$(basename "$disk") normal - online online"
same "table" "$(dmsetup table v)" "$(table rvdo "$disk" 8192 4096 compression on)"
same "zeroes" "$(dd if=/dev/mapper/v bs=1M count=4 status=none iflag=direct | tr -d '\0' | wc -c)" 0
same "logical blocks used" "$(stat_of v logicalBlocksUsed)" 0
same "data blocks used" "$(stat_of v dataBlocksUsed)" 0

case_begin unique
blocks 2048 unique 0 >/tmp/case/unique
truncate -s 44M $model
check put /tmp/case/unique /dev/mapper/v 0 $model
check holds /dev/mapper/v /tmp/case/unique
same "logical blocks used" "$(stat_of v logicalBlocksUsed)" 2048
same "data blocks used" "$(stat_of v dataBlocksUsed)" 2048

case_begin duplicates
check put /tmp/case/unique /dev/mapper/v 16 $model
check holds /dev/mapper/v $model
same "logical blocks used" "$(stat_of v logicalBlocksUsed)" 4096
same "data blocks used" "$(stat_of v dataBlocksUsed)" 2048

case_begin compressible
blocks 2048 compressible 0 compressible >/tmp/case/compressible
check put /tmp/case/compressible /dev/mapper/v 32 $model
used=$(($(stat_of v dataBlocksUsed) - 2048))
[ $used -lt 900 ] || fail "2048 blocks of about 1000 bytes took $used"
check [ "$(compress_stat_of v errors)" = 0 ]

case_begin zeroes-and-discards
before=$(stat_of v dataBlocksUsed)
check dd if=/dev/zero of=/dev/mapper/v bs=1M count=4 seek=48 oflag=direct conv=fsync status=none
same "data blocks used by zeroes" "$(stat_of v dataBlocksUsed)" "$before"
check drop /dev/mapper/v 0 4 $model
# Still held by the duplicates.
same "after the discard of one copy" "$(stat_of v dataBlocksUsed)" "$before"
check drop /dev/mapper/v 16 4 $model
same "after the discard of both" "$(stat_of v dataBlocksUsed)" $((before - 1024))
check holds /dev/mapper/v $model

case_begin overwrites
blocks 1024 over 30 compressible >/tmp/case/over
check put /tmp/case/over /dev/mapper/v 33 $model
check put /tmp/case/over /dev/mapper/v 3 $model
# Parts of blocks, through the page cache.
printf 'small' | dd of=/dev/mapper/v bs=1 seek=$((34 * 1048576 + 4093)) conv=notrunc,fsync status=none
printf 'small' | dd of=$model bs=1 seek=$((34 * 1048576 + 4093)) conv=notrunc status=none
# FUA and flushes.
check dd if=/tmp/case/over of=/dev/mapper/v bs=4k count=64 seek=$((40 * 256)) oflag=direct,dsync status=none
dd if=/tmp/case/over of=$model bs=4k count=64 seek=$((40 * 256)) conv=notrunc status=none
check holds /dev/mapper/v $model
stays_normal v

case_begin saved
check dmsetup remove v
check audit "$disk"
need start rvdo v "$disk" 8192 4096 compression off
check holds /dev/mapper/v $model
check dmsetup remove v
check audit "$disk"

case_begin logical-block-size-512
need start rvdo v "$disk" 8192 512 compression on
same "block sizes" "$(blockdev --getss --getpbsz /dev/mapper/v | xargs)" "512 4096"
check dd if=/tmp/case/over of=/dev/mapper/v bs=512 count=101 seek=$((20 * 2048 + 3)) oflag=direct conv=notrunc,fsync status=none
dd if=/tmp/case/over of=$model bs=512 count=101 seek=$((20 * 2048 + 3)) conv=notrunc status=none
check holds /dev/mapper/v $model
same "partial writes" "$(ask v stats | grep -o 'biosInPartial : {[^}]*' | grep -o 'write : [0-9]*')" "write : 101"
check dmsetup remove v
check audit "$disk"

case_begin old-table-lines
physical=$(($(sectors "$disk") / 8))
for words in "V3 $disk $physical 4096 32768 16380 auto" "V2 $disk $physical 4096 32768 16380 off auto pool maxDiscard 1500" \
	"V1 $disk $physical 4096 dev none 32768 16380 off auto pool ack=1,bio=2" "$disk 4096 dev none 32768 16380 off auto pool ."; do
	check dmsetup create v --table "0 16777216 rvdo $words" || continue
	same table "$(dmsetup table v)" "0 16777216 rvdo $words"
	check cmp -n 8388608 -i $((32 << 20)) /dev/mapper/v $model
	check dmsetup remove v
done
check audit "$disk"

case_begin two-volumes
other=$(loop_disk 4G)
need format "$other" 1024
need start rvdo v "$disk" 8192 4096 compression on
need start rvdo w "$other" 1024 4096 compression on
check put /tmp/case/unique /dev/mapper/w 0 &
writer=$!
check put /tmp/case/compressible /dev/mapper/v 0 $model
wait $writer
check holds /dev/mapper/v $model
check holds /dev/mapper/w /tmp/case/unique
[ "$(stat_of v instance)" != "$(stat_of w instance)" ] || fail "both are instance $(stat_of v instance)"
REFERENCES=2 refused "cannot share storage device" "$(table rvdo "$disk" 8192 4096)"
check dmsetup remove v
check dmsetup remove w
check audit "$disk"
check audit "$other"
check rmmod rvdo
