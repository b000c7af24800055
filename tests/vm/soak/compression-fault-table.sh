#!/bin/bash
# Every fault of a compression engine, during writes, verification of duplicates, reads and recovery: what the user sees. Each fault
# gives a line `TABLE ...`, and has to leave a volume in normal mode with the right data and no failed request.
. /job/lib.sh
. /job/volume.sh
. /job/compression.sh

disk=$(blank_disk /dev/vda)
model=/tmp/case/model
mib=256
count=384
mkdir -p /tmp/case
modprobe -a lz4 deflate
need load rvdo
need load fake_iaa
line() { table rvdo "$disk" $mib 4096 compression on compressionType deflate-iaa compressionVerify "$verify"; }
honest() { engine fail_every=0 length_every=0 corrupt_every=0 busy_every=0 hold_every=0 gone=0 delay_us=20 reorder=0 faulty=3; }
sum_of() { echo "$(figure v deflate-iaa calls) $(figure v deflate-iaa decompress_calls) $(figure v deflate-iaa errors) $(figure v deflate-iaa incompressible) $(figure v deflate-iaa decompress_errors) $(figure v deflate-iaa fallbacks) $(figure v deflate-iaa stalls) $(compress_stat_of v verify_errors)"; }
# timed COMMAND...: its status and how long it took, in `rc` and `took`.
timed() {
	local begin
	begin=$(seconds)
	"$@" && rc=0 || rc=$?
	took=$(python3 -c 'import sys; print("%.1f" % (float(sys.argv[2]) - float(sys.argv[1])))' "$begin" "$(seconds)")
}
write_at() { dd if=/tmp/case/part of=/dev/mapper/v bs=1M seek="$1" oflag=direct conv=notrunc,fsync status=none 2>/dev/null; }
number=0
# fault NAME VERIFY SETTING...: all of it under that fault.
fault() {
	local name=$1 write_rc write_s dup_rc dup_s read_rc read_s recovery_rc recovery_s counters
	verify=$2
	shift 2
	case_begin "$name"
	honest
	number=$((number + 1))
	truncate -s 0 $model
	truncate -s 8M $model
	blank_disk "$disk" >/dev/null
	need format "$disk" $mib
	need dmsetup create v --table "$(line) upgrade on"
	same driver "$(compress_stat_of v driver)" deflate-iaa
	blocks $count "fault table $number" 0 compressible >/tmp/case/part
	dmesg -c >/dev/null
	engine "$@"
	# What is written twice is compared with what is there.
	timed write_at 0
	write_rc=$rc write_s=$took
	timed write_at 4
	dup_rc=$rc dup_s=$took
	for at in 0 4; do dd if=/tmp/case/part of=$model bs=1M seek=$at conv=notrunc status=none; done
	timed cmp $model <(dd if=/dev/mapper/v bs=1M count=8 iflag=direct status=none)
	read_rc=$rc read_s=$took
	counters=$(sum_of)
	stays_normal v
	# The volume is taken away without a save, and recovers with the fault.
	check dmsetup suspend --noflush v
	check dmsetup remove v
	timed dmsetup create v --table "$(line)"
	same "recovery" "$rc" 0
	until [ "$(mode_of v)" != recovering ]; do sleep 0.2; done
	timed cmp $model <(dd if=/dev/mapper/v bs=1M count=8 iflag=direct status=none)
	recovery_rc=$rc recovery_s=$took
	stays_normal v
	for status in "$write_rc" "$dup_rc" "$read_rc" "$recovery_rc"; do same "status" "$status" 0; done
	same "unreadable fragments" "$(compress_stat_of v decompress_errors)" 0
	# Of blocks that wait for the engine, all wait at the same time.
	for s in $write_s $dup_s $read_s $recovery_s; do [ "${s%.*}" -lt 60 ] || fail "$s s"; done
	[ "$(dmesg | grep -c rvdo:)" -lt 20 ] || fail "flood in the log: $(dmesg | grep -c rvdo:) lines"
	echo "TABLE $name | $* | write $write_rc ($write_s s) duplicates $dup_rc ($dup_s s) read $read_rc ($read_s s) recovered $recovery_rc ($recovery_s s) | $counters | $(stat_of v dataBlocksUsed) blocks | $(dmesg | grep -c 'rvdo: .*deflate-iaa') lines: $(dmesg | grep -o 'rvdo: .*deflate-iaa.*' | head -1)"
	honest
	check dmsetup remove v
}
echo "TABLE fault | settings | status (time) of each | calls, decompressions, errors, incompressible, decompression errors, fallbacks, stalls, verify errors"
fault none off delay_us=20
fault slow-out-of-order off delay_us=3000 reorder=1
fault backlog off busy_every=2
fault io-errors off fail_every=3 fail_errno=5
fault only-io-errors off fail_every=1 fail_errno=5
fault timeouts off fail_every=3 fail_errno=110
fault vanishes-now-and-then off fail_every=5 fail_errno=19
fault vanished off gone=1
fault length-beyond-the-buffer off length_every=2 length_bias=5000
fault length-short on length_every=2 length_bias=-3
fault corrupt-when-compressing on corrupt_every=2 faulty=1
fault never-answers-some off hold_every=5
fault never-answers off hold_every=1
check rmmod rvdo
check rmmod fake_iaa
