#!/bin/bash
# A volume of many formats: what other compressors would save, who refuses it, and the way back to the in-tree driver.
. /job/lib.sh
. /job/volume.sh

disk=$(blank_disk /dev/vda)
model=/tmp/case/model
mib=256
mkdir -p /tmp/case
need modprobe dm-vdo
modprobe -a lz4 lz4hc deflate zstd
need load rvdo
# Tables need not say how large the disk is used.
line() { table rvdo "$disk" $mib 4096 compression on "$@"; }
reload() { dmsetup reload v --table "$(line "$@")" && dmsetup suspend v && dmsetup resume v; }
used() { stat_of v dataBlocksUsed; }
in_log() { dmesg | grep -qF -- "$1" || fail "no '$1' in: $(dmesg | tail -5)"; }
refused_message() { # WHY MESSAGE...
	dmesg -c >/dev/null
	if ask v "${@:2}" 2>/dev/null; then fail "accepted: ${*:2}"; fi
	in_log "$1"
}
# write_part N: one more part of what the model has, and all of it reads back.
write_part() {
	local before after
	before=$(used)
	blocks 512 "formats $1" 20 compressible >/tmp/case/part
	check put /tmp/case/part /dev/mapper/v "$((2 * $1))" $model
	check holds /dev/mapper/v $model
	after=$(used)
	echo "part $1 with $(compress_stat_of v driver): $((after - before)) blocks for 512"
	[ $((after - before)) -lt 300 ] || fail "part $1 took $((after - before)) blocks"
}

case_begin of-many-formats
need load fake_iaa
need format "$disk" $mib
truncate -s 24M $model
need start vdo v "$disk" $mib 4096 compression on
blocks 1024 lz4 30 compressible >/tmp/case/part
check put /tmp/case/part /dev/mapper/v 0 $model
check dmsetup remove v
need dmsetup create v --table "$(line upgrade on compressionType zstd)"
same volume "$(compress_stat_of v volume)" "67.1 0x02030001"
write_part 4
check ask v compression-type deflate-iaa
write_part 5
check ask v compression-type lz4hc
write_part 6

case_begin estimate
ask v compress-estimate 300 | tee /tmp/case/estimate
check grep -q "^blocks sampled: 300" /tmp/case/estimate
for driver in lz4-scomp lz4hc-scomp deflate-generic deflate-iaa zstd-generic; do
	check grep -q "^$driver: blocks [0-9]* of 300, saved [5-9]" /tmp/case/estimate
done
same calls "$(compress_stat_of v calls)" "$(compress_stat_of v calls)"
check dmsetup remove v

case_begin others-refuse
if dmsetup create v --table "$(table vdo "$disk" $mib 4096)" 2>/dev/null; then
	fail "the in-tree driver took the volume"
	dmsetup remove v
fi
dmesg | grep -q "version mismatch" || fail "no reason in: $(dmesg | tail -3)"
if vdoaudit "$disk" >/tmp/audit.log 2>&1; then fail "vdoaudit took the volume"; fi
tail -1 /tmp/audit.log
need command -v vdolistmetadata
if vdolistmetadata "$disk" >/tmp/audit.log 2>&1; then fail "vdolistmetadata took the volume"; fi

case_begin downgrade
need dmsetup create v --table "$(line compressionType deflate)"
check holds /dev/mapper/v $model
refused_message "send 'compression-type lz4' first" downgrade
check ask v compression-type lz4
refused_message "blocks are" downgrade
dmesg | tail -1
# All but the LZ4 of the beginning is written anew, with LZ4.
dd if=$model of=/tmp/case/rest bs=1M skip=8 count=32 status=none
check blkdiscard --offset $((8 << 20)) --length $((16 << 20)) /dev/mapper/v
check put /tmp/case/rest /dev/mapper/v 8
check holds /dev/mapper/v $model
check ask v downgrade
same volume "$(compress_stat_of v volume)" 67.0
refused_message "needs the per-block algorithm field" compression-type zstd
check holds /dev/mapper/v $model
stays_normal v
check dmsetup remove v
check audit "$disk"
need start vdo v "$disk" $mib 4096 compression on
check holds /dev/mapper/v $model
check dmsetup remove v

case_begin upgrade-by-table
need dmsetup create v --table "$(line upgrade on compressionType zstd)"
same volume "$(compress_stat_of v volume)" "67.1 0x02030001"
write_part 8

case_begin missing-driver
# A format that the volume has, without any driver: refused by name.
check ask v compression-type deflate
write_part 9
check dmsetup remove v
check rmmod fake_iaa
drivers=/usr/lib/modules/$(uname -r)/kernel/crypto
for format in zstd deflate; do
	need modprobe -r $format
	need mv "$drivers/$format.ko" /tmp/case/
	refused "no driver for $format works in this kernel" "$(line)"
	mv "/tmp/case/$format.ko" "$drivers/"
done
need dmsetup create v --table "$(line)"
check holds /dev/mapper/v $model
stays_normal v
check dmsetup remove v
check rmmod rvdo
check rmmod dm-vdo
