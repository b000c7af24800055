#!/bin/bash
# fio writes, trims, flushes and verifies. The long version is in tests/vm/soak.
. /job/lib.sh
. /job/volume.sh

need load rvdo
disk=$(loop_disk 4G)

# verify NAME BLOCK_SIZE JOBS DEPTH SIZE_OF_A_JOB [FIO OPTION...]
verify() {
	local name=$1 size=$2 jobs=$3 depth=$4 each=$5
	shift 5
	fio --name="$name" --eta=never --filename=/dev/mapper/v --direct=1 --ioengine=libaio --iodepth="$depth" --bs="$size" \
		--numjobs="$jobs" --size="$each" --offset_increment="$each" --rw=randwrite --randseed=20 \
		--verify=crc32c --verify_fatal=1 --loops=2 --fsync=64 --buffer_compress_percentage=60 --buffer_compress_chunk=512 \
		--dedupe_percentage=20 --group_reporting --output=/tmp/fio.log "$@" || { tail -30 /tmp/fio.log; return 1; }
	grep -E 'IOPS=' /tmp/fio.log | sed "s/^ */$name: /"
}

# trims AT_MIB: writes and trims of a region of its own, until told to stop.
trims() {
	fio --name=trims --eta=never --filename=/dev/mapper/v --direct=1 --ioengine=libaio --iodepth=8 --rw=randtrimwrite --bs=4k \
		--offset="$1M" --size=16M --time_based --runtime=600 --randseed=21 --output=/tmp/trims.log &
	trimmer=$!
}
no_more_trims() {
	check kill -0 $trimmer
	kill -INT $trimmer
	wait $trimmer
	same "errors of the trims" "$(grep -c 'err= *[1-9]' /tmp/trims.log)" 0
}

case_begin 4k
need format "$disk" 4096
need start rvdo v "$disk" 4096 4096 compression on maxDiscard 256
trims 1024
check verify 4k 4k 8 32 3M
no_more_trims
stays_normal v
check dmsetup remove v
check audit "$disk"

case_begin 512
need start rvdo v "$disk" 4096 512 compression on
trims 1024
check verify 512 512 4 16 256k
check verify mixed-sizes 512 2 16 2M --bsrange=512-64k --blockalign=512
no_more_trims
stays_normal v
check dmsetup remove v
check audit "$disk"

case_begin few-cache-pages
# A logical space wide enough that pages of the block map come and go.
need dmsetup create v --table "0 $((4096 * 2048)) rvdo V4 $disk $(($(sectors "$disk") / 8)) 4096 128 16380 deduplication off"
check verify wide 4k 4 16 1G --number_ios=1000 --loops=1
stays_normal v
check dmsetup remove v
check audit "$disk"
check rmmod rvdo
