#!/bin/bash
# How long the start of a volume takes that was left with a full recovery journal: this driver and the in-tree one, in
# turns, each on a snapshot of the same disk.
. /job/lib.sh
. /job/volume.sh

need modprobe -a dm-vdo dm-snapshot
need load rvdo
mkdir -p /tmp/case
disk=$(blank_disk /dev/vda)
store=$(blank_disk /dev/vdb)
mib=4096
need format "$disk" $mib
case_begin full-journal
need start vdo v "$disk" $mib 4096 deduplication off maxDiscard 1024
# Zeroes and discards are entries without data. Each round maps and unmaps all of it; what the block map wrote already
# the journal need not keep, so it is full when it holds as much as the age of the table line allows.
fio --name=fill --eta=never --filename=/dev/mapper/v --direct=1 --ioengine=libaio --iodepth=64 --rw=randwrite --bs=64k --randseed=5 \
	--size=2G --io_size="${FILL:-3G}" --buffer_compress_percentage=90 --output=/tmp/fio.log || fail "fio: $(tail -3 /tmp/fio.log)"
for _ in $(seq "${ROUNDS:-4}"); do
	check blkdiscard --length 2G /dev/mapper/v
	check dd if=/dev/zero of=/dev/mapper/v bs=1M count=2048 oflag=direct status=none
done
ask v stats | grep -oE 'entries(Started|Written|Committed) : [0-9]+|blocks(Started|Written|Committed) : [0-9]+' | xargs
check dmsetup suspend --noflush v
check dmsetup remove v

size=$(sectors "$disk")
for round in $(seq "${TIMES:-3}"); do
	for driver in rvdo vdo; do
		need dmsetup create snap --table "0 $size snapshot $disk $store N 8"
		sync
		begin=$(seconds)
		need start $driver v /dev/mapper/snap $mib 4096 deduplication off
		served=$(seconds)
		check dd if=/dev/mapper/v of=/dev/null bs=4k count=1 iflag=direct status=none
		for _ in $(seq 6000); do
			[ "$(mode_of v)" = recovering ] || break
			sleep 0.1
		done
		end=$(seconds)
		awk "BEGIN { printf \"round $round $driver: serves after %.2f s, recovered after %.2f s\n\", $served - $begin, $end - $begin }" | tee -a /tmp/case/times
		same "recoveries by $driver" "$(stat_of v completeRecoveries)" 1
		check dmsetup remove v
		check audit /dev/mapper/snap
		check dmsetup remove snap
	done
done
median() { # DRIVER FIELD
	grep " $1:" /tmp/case/times | awk "{ print \$$2 }" | sort -n | sed -n "$(((${TIMES:-3} + 1) / 2))p"
}
for driver in rvdo vdo; do
	echo "$driver: median of ${TIMES:-3}: serves after $(median $driver 6) s, recovered after $(median $driver 10) s"
done
check rmmod rvdo
check rmmod dm-vdo
