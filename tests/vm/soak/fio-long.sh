#!/bin/bash
# 200,000 verified operations and more over 2 GiB, beside trims.
. /job/lib.sh
. /job/volume.sh

need load rvdo
disk=$(blank_disk /dev/vda)
need format "$disk" 8192

# verify NAME BLOCK_SIZE EACH_JOB WRITES_OF_A_JOB
verify() {
	fio --name="$1" --eta=never --filename=/dev/mapper/v --direct=1 --ioengine=libaio --iodepth=32 --bs="$2" --numjobs=8 \
		--size="$3" --offset_increment="$3" --rw=randwrite --number_ios="$4" --randseed=30 --verify=crc32c --verify_fatal=1 \
		--fsync=128 --buffer_compress_percentage=60 --buffer_compress_chunk=512 --dedupe_percentage=20 --group_reporting \
		--output=/tmp/fio.log || { tail -30 /tmp/fio.log; return 1; }
	grep -E 'IOPS=|issued rwts' /tmp/fio.log | sed "s/^ */$1: /"
}
trims() {
	fio --name=trims --eta=never --filename=/dev/mapper/v --direct=1 --ioengine=libaio --iodepth=4 --rw=randtrimwrite --bs=4k \
		--offset=4G --size=64M --time_based --runtime=7200 --rate_iops=200 --randseed=31 --output=/tmp/trims.log &
	trimmer=$!
}
no_more_trims() {
	check kill -0 $trimmer
	kill -INT $trimmer
	wait $trimmer
	same "errors of the trims" "$(grep -c 'err= *[1-9]' /tmp/trims.log)" 0
	grep -E 'issued rwts' /tmp/trims.log | sed 's/^ */trims: /'
}

case_begin 4k
need start rvdo v "$disk" 8192 4096 compression on maxDiscard 256
trims
check verify 4k 4k 256M 10000
no_more_trims
stays_normal v
check dmsetup remove v
check audit "$disk"

case_begin 512
need start rvdo v "$disk" 8192 512 compression on maxDiscard 256
trims
check verify 512 512 256M 4000
no_more_trims
stays_normal v
check dmsetup remove v
check audit "$disk"
check rmmod rvdo
