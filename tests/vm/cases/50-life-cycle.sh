#!/bin/bash
# A volume is suspended, resumed, reloaded, made and removed, under load, and leaves nothing behind.
. /job/lib.sh
. /job/volume.sh

ROUNDS=${ROUNDS:-10}
need load rvdo
disk=$(loop_disk 4G)
need format "$disk" 4096

load_begins() {
	fio --name=load --eta=never --filename=/dev/mapper/v --direct=1 --ioengine=libaio --iodepth=16 --numjobs=2 --rw=randrw --bs=4k \
		--size=8M --offset_increment=8M --verify=crc32c --verify_fatal=1 --fsync=32 --loops=1000 --time_based --runtime=3600 \
		--buffer_compress_percentage=60 --output=/tmp/fio.log &
	load=$!
	# Until it writes.
	while [ "$(stat_of v logicalBlocksUsed)" -lt 64 ]; do kill -0 $load || return; done
}
load_ends() {
	check kill -0 $load
	kill -INT $load
	wait $load
	same "errors of fio" "$(grep -cE 'err= *[1-9]|verify:' /tmp/fio.log)" 0 || tail -30 /tmp/fio.log
}
in_flight() { stat_of v currentVIOsInProgress; }

case_begin suspend-under-load
need start rvdo v "$disk" 4096 4096 compression on
load_begins
for round in $(seq "$ROUNDS"); do
	check dmsetup suspend v
	same "in flight in round $round" "$(in_flight)" 0
	# A volume that was suspended with a flush is clean on the disk, and the tools agree.
	if [ $((round % 5)) = 0 ]; then check audit "$disk"; fi
	written=$(stat_of v logicalBlocksUsed)
	check dmsetup resume v
	check dmsetup suspend --noflush v
	same "in flight in round $round, no flush" "$(in_flight)" 0
	check dmsetup status v >/dev/null
	check dmsetup resume v
done
load_ends
[ "$written" -gt 0 ] || fail "nothing was written"
stays_normal v
check dmsetup remove v
check audit "$disk"

case_begin reload
need start rvdo v "$disk" 4096 4096 compression off
load_begins
for options in "compression on" "compression on deduplication off" "maxDiscard 64" "deduplication off maxDiscard 8" "compression on maxDiscard 1500"; do
	# shellcheck disable=SC2086 # words
	wanted=$(table rvdo "$disk" 4096 4096 $options)
	check dmsetup load v --table "$wanted"
	check dmsetup suspend v
	check dmsetup resume v
	same "table" "$(dmsetup table v)" "$wanted"
	words=$(dmsetup status v)
	case $options in
	*"compression on"*) [[ $words == *" online "[0-9]* ]] || fail "$options: $words" ;;
	*) [[ $words == *" offline "[0-9]* ]] || fail "$options: $words" ;;
	esac
done
queue=/sys/dev/block/$(dmsetup info -c --noheadings -o major,minor v)/queue
same "largest discard" "$(cat "$queue/discard_max_bytes")" $((1500 * 4096))
load_ends
same "sectors" "$(sectors /dev/mapper/v)" $((4096 * 2048))
# A table that is dropped again changes nothing.
check dmsetup load v --table "$(table rvdo "$disk" 8192 4096)"
check dmsetup clear v
same "table" "$(dmsetup table v)" "$(table rvdo "$disk" 4096 4096 compression on maxDiscard 1500)"
# Nor can the data be elsewhere from one table to the next; another name of the same device is one.
other=$(loop_disk 4G)
dmesg -c >/dev/null
if dmsetup load v --table "$(table rvdo "$other" 4096 4096)" 2>/dev/null; then fail "another device was accepted"; fi
dmesg | grep -q "Storage device cannot change" || fail "no reason in: $(dmesg | tail -3)"
losetup -d "$other"
need ln -s "$disk" /dev/another-name
check dmsetup load v --table "$(table rvdo /dev/another-name 4096 4096)"
check dmsetup clear v

case_begin logical-growth
blocks 256 grown 0 >/tmp/case/grown
check dmsetup load v --table "$(table rvdo "$disk" 6144 4096 compression on)"
check dmsetup suspend v
check dmsetup resume v
same "sectors" "$(sectors /dev/mapper/v)" $((6144 * 2048))
same "logical blocks" "$(stat_of v logicalBlocks)" $((6144 * 256))
check put /tmp/case/grown /dev/mapper/v 6140
check dmsetup remove v
check audit "$disk"
need start rvdo v "$disk" 6144 4096
check holds /dev/mapper/v /tmp/case/grown 6140

case_begin refused-reloads
# refused_reload WHY TABLE: and the volume goes on.
refused_reload() {
	dmesg -c >/dev/null
	if dmsetup load v --table "$2" 2>/dev/null; then
		fail "accepted: $2"
		dmsetup clear v
	fi
	dmesg | grep -qF -- "$1" || fail "no '$1' in: $(dmesg | tail -3)"
	check holds /dev/mapper/v /tmp/case/grown 6140
}
physical=$(($(sectors "$disk") / 8))
refused_reload "Can't shrink VDO logical size" "$(table rvdo "$disk" 4096 4096)"
refused_reload "Logical block size cannot change" "$(table rvdo "$disk" 6144 512)"
refused_reload "Removing physical storage from a VDO is not supported" \
	"0 $((6144 * 2048)) rvdo V4 $disk $((physical - 8192)) 4096 32768 16380"
refused_reload "Block map cache size cannot change" "0 $((6144 * 2048)) rvdo V4 $disk $physical 4096 65536 16380"
refused_reload "Block map maximum age cannot change" "0 $((6144 * 2048)) rvdo V4 $disk $physical 4096 32768 8000"
refused_reload "Thread configuration cannot change" "$(table rvdo "$disk" 6144 4096 ack 2)"
refused_reload "compressionType" "$(table rvdo "$disk" 6144 4096 compressionType deflate)"
stays_normal v

case_begin messages-while-suspended
# What is suspended is neither written to nor read.
check dmsetup suspend v
for message in "compression-type lz4" "accelerators none" "upgrade" "downgrade" "compress-estimate 10"; do
	dmesg -c >/dev/null
	# shellcheck disable=SC2086 # words
	ask v $message 2>/dev/null && fail "accepted while suspended: $message"
	dmesg | grep -q "the volume is suspended" || fail "no reason given for: $message"
done
check dmsetup resume v
check ask v compression-type lz4
check holds /dev/mapper/v /tmp/case/grown 6140

case_begin nobody-waits-for-another
# A volume whose device does not answer is no reason for another not to open or close.
below=$(slab_disk 2) other=$(slab_disk 2)
need format "$below" 1024
need format "$other" 1024
need dmsetup create below --table "0 $(sectors "$below") linear $below 0"
line=$(table rvdo /dev/mapper/below 1024 4096)
need dmsetup suspend below
dmsetup create slow --table "$line" &
slow=$!
until [ "$(dmsetup info -c --noheadings -o open below)" = 1 ]; do kill -0 $slow || break; done
check timeout 60 dmsetup create quick --table "$(table rvdo "$other" 1024 4096)"
check timeout 60 dmsetup remove quick
check kill -0 $slow
check dmsetup resume below
check wait $slow
stays_normal slow
check dmsetup remove slow
check dmsetup remove below

case_begin module-in-use
rmmod rvdo 2>/dev/null && fail "unloaded while a volume runs"
same references "$(cat /sys/module/rvdo/refcnt)" 1
check dmsetup remove v
same references "$(cat /sys/module/rvdo/refcnt)" 0
check audit "$disk"

case_begin create-remove
round_of() {
	start rvdo v "$disk" 6144 4096 compression on || return
	dmsetup status v >/dev/null && dd if=/tmp/case/grown of=/dev/mapper/v bs=64k count=2 seek="$1" oflag=direct status=none
	dmsetup remove v
}
# The first rounds fill what the kernel keeps.
for round in 1 2; do check round_of "$round"; done
before=$(memory_kib)
for round in $(seq "$ROUNDS"); do check round_of "$round"; done
lost=$(($(memory_kib) - before))
echo "memory after $ROUNDS rounds: $lost KiB more"
# What one volume takes is a hundred times this.
[ $lost -lt 6144 ] || fail "$lost KiB more memory in use than before"
same holders "$(find "/sys/block/$(basename "$disk")/holders" -mindepth 1 | wc -l)" 0
check audit "$disk"

case_begin never-resumed
# A table that is loaded and never resumed leaves the volume as it was.
before=$(dd if="$disk" bs=1M count=1 skip=2652 status=none | sha256sum)
for _ in 1 2 3; do
	check dmsetup create v --notable
	check dmsetup load v --table "$(table rvdo "$disk" 6144 4096)"
	check dmsetup remove v
done
same "super block" "$(dd if="$disk" bs=1M count=1 skip=2652 status=none | sha256sum)" "$before"

case_begin unload
for _ in 1 2 3; do
	check rmmod rvdo
	check load rvdo
done
with=$(memory_kib)
need start rvdo v "$disk" 6144 4096 compression on
echo "memory of a running volume: $((($(memory_kib) - with) / 1024)) MiB"
check dmsetup remove v
left=$(($(memory_kib) - with))
[ $left -lt 6144 ] || fail "$left KiB more memory in use than before the volume"
check rmmod rvdo
# The threads of workqueues; others keep the name of the queue they last served.
same "threads left" "$(cat /proc/[0-9]*/comm 2>/dev/null | grep -c '^kworker/R-rvdo')" 0
