#!/bin/bash
# A compression engine that keeps requests for ever: users wait for three seconds once, and nothing else ever waits for it.
. /job/lib.sh
. /job/volume.sh
. /job/compression.sh

disk=$(blank_disk /dev/vda)
model=/tmp/case/model
mib=128
# Calls that a driver can have at a time, see ASYNCHRONOUS_REQUESTS.
readonly CALLS=256
mkdir -p /tmp/case
modprobe -a lz4 deflate
need load rvdo
need load fake_iaa
held() { engine_did held; }
logged() { dmesg | grep -c -- "$1"; }
rounds=0
# survives WHAT: four times as many blocks as there are calls are written at once, and everything reads back.
survives() {
	local begin
	begin=$(seconds)
	rounds=$((rounds + 1))
	blocks $((4 * CALLS)) "stalled $rounds" 0 compressible >/tmp/case/part
	check dd if=/tmp/case/part of=/dev/mapper/v bs=4M oflag=direct conv=notrunc,fsync seek=$((rounds % 3)) status=none
	dd if=/tmp/case/part of=$model bs=4M conv=notrunc seek=$((rounds % 3)) status=none
	check holds /dev/mapper/v $model
	stays_normal v
	echo "$1: $(seconds) - $begin s, stalls $(figure v deflate-iaa stalls), held $(held), backing off $(compress_stat_of v backing_off)"
}
goes() { rmmod "$1" 2>/dev/null; }
works_again() {
	blocks 1 "works again $RANDOM" 0 compressible >/tmp/case/one
	put /tmp/case/one /dev/mapper/v 15 $model
	[ "$(compress_stat_of v backing_off)" = 0 ]
}

case_begin takes-all-calls
need format "$disk" $mib
truncate -s 16M $model
need start rvdo v "$disk" $mib 4096 compression on upgrade on compressionType deflate-iaa
survives "good"
same "left alone" "$(compress_stat_of v backing_off)" 0
dmesg -c >/dev/null
engine hold_every=1
survives "no answers"
same stalls "$(figure v deflate-iaa stalls)" $CALLS
same held "$(held)" $CALLS
same "lines about all calls" "$(logged "as many as it can have")" 1
same "lines about trouble" "$(logged "is in trouble")" 1
same "left alone" "$(compress_stat_of v backing_off)" 1
survives "not asked any more"
same stalls "$(figure v deflate-iaa stalls)" $CALLS

case_begin answers-late
# All calls come back, more than once.
for round in 1 2; do
	engine hold_every=0
	eventually works_again
	before=$(figure v deflate-iaa calls)
	survives "answers again"
	[ "$(figure v deflate-iaa calls)" -ge $((before + CALLS)) ] || fail "round $round: $before calls before, $(figure v deflate-iaa calls) after"
	engine hold_every=1
	before=$(figure v deflate-iaa stalls)
	survives "no answers"
	same "stalls of round $round" "$(figure v deflate-iaa stalls)" $((before + CALLS))
done

case_begin message-and-reload-go-on
before=$(held)
dmesg -c >/dev/null
check ask v compression-type lz4
same driver "$(compress_stat_of v driver)" lz4-scomp
same "lines about what is kept" "$(logged "goes without having answered $CALLS calls")" 1
survives "another driver"
# Opened while it does not answer, and given up again. It gets a call to test it.
check ask v compression-type deflate-iaa
same "left alone" "$(compress_stat_of v backing_off)" 1
survives "asked for while it does not answer"
check dmsetup load v --table "$(table rvdo "$disk" $mib 4096 compression on compressionType lz4)"
check dmsetup suspend v
check dmsetup resume v
same driver "$(compress_stat_of v driver)" lz4-scomp
[ "$(held)" -gt "$before" ] || fail "the engine has $(held) requests, as before"
survives "after the reload"

case_begin remove-goes-on
check ask v compression-type deflate-iaa
check dmsetup remove v
goes rvdo && fail "the module went before the engine answered"
goes fake_iaa && fail "the engine went with requests"
# The volume itself needs nothing of that.
need start rvdo v "$disk" $mib 4096 compression on compressionType lz4
check holds /dev/mapper/v $model
check dmsetup remove v
engine hold_every=0
eventually goes rvdo
eventually goes fake_iaa
