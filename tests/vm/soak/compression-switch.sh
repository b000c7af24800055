#!/bin/bash
# A volume that the in-tree driver filled is upgraded in place and written with one compressor after the other, each time with the
# table loaded anew while fio writes and verifies. All that was ever written reads back after each step and after each load; counts
# by format agree with the headers and the slab maps on the disk. SOAK_SEED=N for other data.
. /job/lib.sh
. /job/volume.sh
. /job/compression.sh

disk=$(blank_disk /dev/vda)
model=/tmp/case/model
mib=512
# Each step writes a region of its own.
region_mib=24
seed=${SOAK_SEED:-1}
echo "seed $seed"
mkdir -p /tmp/case
need modprobe dm-vdo
modprobe -a lz4 deflate zstd
need load rvdo
need load fake_iaa
line() { table rvdo "$disk" $mib 4096 compression on maxDiscard 1024 "$@"; }
reload() { dmsetup reload v --table "$(line "$@")" && dmsetup suspend v && dmsetup resume v; }
job() { # STEP OPTION...: fio in the region of a step, the same blocks each time
	local step=$1
	shift
	fio --name="step$step" --filename=/dev/mapper/v --direct=1 --ioengine=libaio --iodepth=32 --bs=4k --rw=randwrite \
		--offset=$((64 + step * region_mib))M --size=${region_mib}M --randseed=$((seed * 100 + step)) --verify=crc32c --verify_fatal=1 \
		--buffer_compress_percentage=70 --buffer_compress_chunk=4k --dedupe_percentage=20 --minimal "$@" >"/tmp/case/fio.$step" 2>&1 ||
		{ tail -5 "/tmp/case/fio.$step"; return 1; }
}
# all_reads_back: what the in-tree driver wrote, and what every step wrote.
all_reads_back() {
	local n
	check holds /dev/mapper/v $model
	for n in $(seq 1 "$steps"); do check job "$n" --verify_only=1; done
	stays_normal v
}
steps=0
# step NAME FORMAT OPTION...: written while the table is loaded five times, from the options before to these.
before_options=()
step() {
	local name=$1 format=$2 writer older reloads=0
	shift 2
	case_begin "$name"
	steps=$((steps + 1))
	job $steps --do_verify=1 --verify_backlog=256 &
	writer=$!
	job 0 --verify_only=1 &
	older=$!
	while kill -0 $writer 2>/dev/null || [ $reloads -lt 4 ]; do
		check reload "$@"
		check reload "${before_options[@]}"
		reloads=$((reloads + 2))
	done
	check wait $writer
	check wait $older
	check reload "$@"
	before_options=("$@")
	# Another part with these options alone.
	blocks 512 "switch $seed $steps" 20 compressible >/tmp/case/part
	check put /tmp/case/part /dev/mapper/v $((40 + 2 * steps)) $model
	all_reads_back
	[ "$(blocks_of v "$format")" -gt 0 ] || fail "no block of $format: $(counted v)"
	echo "SWITCH $name: $((reloads + 1)) reloads, driver $(compress_stat_of v driver), $(counted v)"
	# And in the next life.
	counts=$(counted v)
	check dmsetup remove v
	same "formats on the disk" "$(formats_on_disk "$disk")" "$counts"
	need dmsetup create v --table "$(line "$@")"
	all_reads_back
	same "formats after the load" "$(counted v)" "$counts"
}

case_begin in-tree-fills
need format "$disk" $mib
truncate -s 64M $model
need start vdo v "$disk" $mib 4096 compression on
blocks 8192 "switch $seed" 30 compressible >/tmp/case/part
check put /tmp/case/part /dev/mapper/v 0 $model
check job 0 --do_verify=1
check dmsetup remove v
check audit "$disk"

case_begin upgraded-in-place
need dmsetup create v --table "$(line)"
check holds /dev/mapper/v $model
check ask v upgrade
check job 0 --verify_only=1
check holds /dev/mapper/v $model
[ "$(blocks_of v lz4)" -gt 100 ] || fail "$(counted v)"

before_options=(compressionType lz4)
step deflate deflate compressionType deflate-generic
step deflate-iaa deflate compressionType deflate-iaa
step zstd zstd compressionType zstd
step lz4-again lz4 compressionType lz4
stays_normal v
check dmsetup remove v
echo "SWITCH at the end: $(formats_on_disk "$disk")"
check rmmod fake_iaa
check rmmod rvdo
check rmmod dm-vdo
