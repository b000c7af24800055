#!/bin/bash
# Volumes go back and forth between this driver and the in-tree one: each reads what the other
# wrote, and writes over it.
. /job/lib.sh
. /job/volume.sh

disk=$(blank_disk /dev/vda)
model=/tmp/case/model
mib=4096
mkdir -p /tmp/case
need modprobe dm-vdo
need load rvdo

# turn DRIVER OPTION... : the volume by that driver, with everything in its place.
turn() {
	need start "$1" v "$disk" $mib 4096 "${@:2}"
	check holds /dev/mapper/v $model
}
saved() {
	stays_normal v
	check dmsetup remove v
	check audit "$disk"
}

for compression in off on; do
	for duplicates in 0 50; do
		case_begin "in-tree-first-compression-$compression-duplicates-$duplicates"
		need blkdiscard --force "$disk"
		need format "$disk" $mib
		rm -f $model
		truncate -s 12M $model
		for part in 1 2 3 4; do blocks 512 "$compression $duplicates $part" $duplicates compressible >/tmp/case/part$part; done
		turn vdo compression $compression
		check put /tmp/case/part1 /dev/mapper/v 0 $model
		check put /tmp/case/part2 /dev/mapper/v 2 $model
		check put /tmp/case/part1 /dev/mapper/v 6 $model
		saved

		turn rvdo compression $compression
		before=$(stat_of v dataBlocksUsed)
		check put /tmp/case/part3 /dev/mapper/v 1 $model
		check put /tmp/case/part2 /dev/mapper/v 8 $model
		check drop /dev/mapper/v 7 1 $model
		check holds /dev/mapper/v $model
		echo "data blocks used: $before, then $(stat_of v dataBlocksUsed)"
		saved

		turn vdo compression $compression
		check put /tmp/case/part4 /dev/mapper/v 3 $model
		check put /tmp/case/part3 /dev/mapper/v 10 $model
		check drop /dev/mapper/v 0 1 $model
		check holds /dev/mapper/v $model
		saved

		turn rvdo compression $compression
		same "logical blocks used" "$(stat_of v logicalBlocksUsed)" \
			"$(python3 -c 'import sys; d = open(sys.argv[1], "rb").read(); print(sum(1 for i in range(0, len(d), 4096) if any(d[i:i + 4096])))' $model)"
		saved
	done
done

case_begin ours-first
need blkdiscard --force "$disk"
need format "$disk" $mib
rm -f $model
truncate -s 12M $model
turn rvdo compression on
check put /tmp/case/part1 /dev/mapper/v 0 $model
check put /tmp/case/part1 /dev/mapper/v 4 $model
used=$(stat_of v dataBlocksUsed)
overhead=$(stat_of v overheadBlocksUsed)
saved
turn vdo compression on
same "data blocks used" "$(stat_of v dataBlocksUsed)" "$used"
same "overhead blocks used" "$(stat_of v overheadBlocksUsed)" "$overhead"
saved
check rmmod rvdo
check rmmod dm-vdo
