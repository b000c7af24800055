#!/bin/bash
# A volume that the in-tree driver filled is upgraded in place and written with one compressor after the other. Every block reads
# back after each step and after each load; the in-tree driver and the tools refuse the volume until it is downgraded.
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

case_begin in-tree-fills
need format "$disk" $mib
truncate -s 40M $model
need start vdo v "$disk" $mib 4096 compression on
blocks 1024 lz4 30 compressible >/tmp/case/part
check put /tmp/case/part /dev/mapper/v 0 $model
check dmsetup remove v
cp $model /tmp/case/model.original

case_begin original-format-stays
need dmsetup create v --table "$(line)"
check holds /dev/mapper/v $model
same volume "$(compress_stat_of v volume)" 67.0
refused_message "needs the per-block algorithm field" compression-type deflate
refused_message "lz4, deflate or zstd driver" compression-type nosuch
refused_message "the volume has the original format already" downgrade
ask v upgrade check
check grep -q "would become: 67.1" <(ask v upgrade check)
dmesg -c >/dev/null
if dmsetup reload v --table "$(line compressionType zstd)" 2>/dev/null; then fail "zstd accepted"; fi
in_log "Load it once with 'upgrade on'"
same algorithm "$(compress_stat_of v algorithm)" lz4
check dmsetup remove v
check audit "$disk"

case_begin upgrade-while-running
need dmsetup create v --table "$(line)"
check ask v upgrade
same volume "$(compress_stat_of v volume)" "67.1 0x00030001"
check grep -q "nothing to do" <(ask v upgrade check)
check holds /dev/mapper/v $model
write_part 4
same algorithm "$(compress_stat_of v algorithm)" lz4
same volume "$(compress_stat_of v volume)" "67.1 0x00030001"

case_begin deflate
check ask v compression-type deflate-generic
same volume "$(compress_stat_of v volume)" "67.1 0x01030001"
write_part 5

case_begin deflate-iaa-absent
check reload compressionType deflate-iaa
same requested "$(compress_stat_of v requested)" deflate-iaa
same driver "$(compress_stat_of v driver)" deflate-generic
write_part 6

case_begin deflate-iaa
need load fake_iaa
check reload compressionType deflate-iaa
same driver "$(compress_stat_of v driver)" deflate-iaa
same async "$(compress_stat_of v async)" 1
write_part 7

case_begin zstd
check reload compressionType zstd decompressAccelerators deflate-iaa
same driver "$(compress_stat_of v driver)" zstd-generic
same volume "$(compress_stat_of v volume)" "67.1 0x03030001"
write_part 8

case_begin lz4hc-and-lz4-again
check reload compressionType lz4hc compressionVerify on
same driver "$(compress_stat_of v driver)" lz4hc-scomp
write_part 9
same "verify errors" "$(compress_stat_of v verify_errors)" 0
check reload compressionType lz4:9
same driver "$(compress_stat_of v driver)" rvdo-lz4-9
write_part 10
check ask v compression-type lz4:70
same driver "$(compress_stat_of v driver)" rvdo-lz4-70
check grep -q rvdo-lz4-70 /proc/crypto
check ask v compression-type lz4
ask v compress-stats
# The same data in a volume of many formats is found, whatever it is compressed with.
before=$(used)
dd if=$model bs=1M skip=8 count=12 of=/tmp/case/again status=none
check put /tmp/case/again /dev/mapper/v 26 $model
check holds /dev/mapper/v $model
grown=$(($(used) - before))
echo "duplicates of all formats: $grown blocks for 3072"
[ $grown -lt 300 ] || fail "duplicates were stored again: $grown blocks"

case_begin next-load
stays_normal v
check dmsetup remove v
need dmsetup create v --table "$(line compressionType zstd)"
check holds /dev/mapper/v $model
write_part 20
check dmsetup remove v

check rmmod fake_iaa
check rmmod rvdo
check rmmod dm-vdo
