#!/bin/bash
# Making and removing a target again and again leaves nothing behind.
. /job/lib.sh
. /job/volume.sh

need load rvdo_selftest
disk=$(ram_disk 16)
size=$(sectors "$disk")

case_begin create-remove
before=$(memory_kib)
for round in $(seq 200); do
	dmsetup create pass --table "0 $size rvdo-pass $disk" || fail "round $round: create"
	dmsetup status pass >/dev/null || fail "round $round: status"
	dmsetup remove pass || fail "round $round: remove"
done
lost=$(($(memory_kib) - before))
# The pages of one round's tasks alone are 256 KiB.
[ $lost -lt 16384 ] || fail "$lost KiB less memory than before"
same references "$(cat /sys/module/rvdo_selftest/refcnt)" 0

case_begin failing-late
before=$(memory_kib)
for round in $(seq 60); do
	dmsetup create pass --table "0 $size rvdo-pass $disk fail late" 2>/dev/null && fail "round $round: accepted"
done
lost=$(($(memory_kib) - before))
[ $lost -lt 8192 ] || fail "$lost KiB less memory than before"
same references "$(cat /sys/module/rvdo_selftest/refcnt)" 0

case_begin unload
check rmmod rvdo_selftest
check rmmod brd
