#!/bin/bash
# The wrappers for device-mapper targets, bios and block devices, by way of the
# pass-through target of the self-test module.
. /job/lib.sh

module=rvdo_selftest
need load $module second_name=1
disk=$(ram_disk 96)
short=$(loop_disk 1M)
size=$(sectors "$disk")

references() { cat /sys/module/$module/refcnt; }
holders() { find "/sys/block/$(basename "$1")/holders" -mindepth 1 | wc -l; }
create() { dmsetup create "$1" --table "0 $size rvdo-pass ${2:-$disk}" && test -b "/dev/mapper/$1"; }
counter() { # NAME COUNTER: one number of the status line
	dmsetup status "$1" | sed -n "s/.* $2 \([0-9]*\).*/\1/p"
}

case_begin registration
check grep -q '^rvdo-pass *v1.2.3$' <(dmsetup targets)
check grep -q '^rvdo-pass2 *v1.2.3$' <(dmsetup targets)
check dmsetup create second --table "0 $size rvdo-pass2 $disk tasks 1 in_flight 1"
same target "$(dmsetup table second)" "0 $size rvdo-pass2 $disk tasks 1 in_flight 1"
check dmsetup remove second

case_begin constructor-errors
# refused WHY TABLE...: the table is refused, with this text in the kernel log, and nothing stays behind.
refused() {
	local why=$1
	shift
	dmesg -c >/dev/null
	if dmsetup create refused --table "$*" 2>/dev/null; then
		fail "accepted: $*"
		dmsetup remove refused
	fi
	dmesg | grep -qF "$why" || fail "no '$why' in: $(dmesg | tail -3)"
	same "references after '$why'" "$(references)" 0
	same "holders after '$why'" "$(holders "$disk") $(holders "$short")" "0 0"
}
refused "expected a device and pairs of words; got 0 words" 0 "$size" rvdo-pass
refused "expected a device and pairs of words; got 2 words" 0 "$size" rvdo-pass "$disk" tasks
refused "unknown option; got 3 words" 0 "$size" rvdo-pass "$disk" colour blue
refused "bad number of tasks" 0 "$size" rvdo-pass "$disk" tasks many
refused "bad number of tasks" 0 "$size" rvdo-pass "$disk" tasks 0
refused "bad number in flight" 0 "$size" rvdo-pass "$disk" in_flight 5000
refused "cannot open /dev/missing" 0 "$size" rvdo-pass /dev/missing
refused "$short has 2048 sectors, $size are needed" 0 "$size" rvdo-pass "$short"
refused "failing late, as asked" 0 "$size" rvdo-pass "$disk" fail late
refused "must appear alone in table" "0 8 rvdo-pass $disk
8 8 rvdo-pass $disk"
for _ in $(seq 40); do
	dmsetup create refused --table "0 $size rvdo-pass $disk fail late" 2>/dev/null && fail "accepted"
done
same references "$(references)" 0

case_begin long-error-text
dmesg -c >/dev/null
long=/dev/$(printf 'x%.0s' $(seq 400))
dmsetup create refused --table "0 $size rvdo-pass $long" 2>/dev/null && fail "accepted"
same "length of the text" "$(dmesg | grep -o 'cannot open /dev/x*' | head -1 | wc -c)" 256

case_begin limits
need create pass
same blocks "$(blockdev --getss --getpbsz --getiomin --getioopt /dev/mapper/pass | xargs)" "4096 4096 4096 4096"
queue=/sys/dev/block/$(dmsetup info -c --noheadings -o major,minor pass)/queue
same discards "$(cat "$queue/discard_granularity" "$queue/discard_max_bytes" | xargs)" "4096 262144"
same "write cache" "$(cat "$queue/write_cache")" "write back"

case_begin module-in-use
same references "$(references)" 1
rmmod $module 2>/dev/null && fail "unloaded while a device exists"
same holders "$(holders "$disk")" 1

case_begin fio-verify
check fio --name=verify --eta=never --filename=/dev/mapper/pass --direct=1 --ioengine=libaio --iodepth=16 \
	--numjobs=4 --size=16M --offset_increment=16M --rw=randwrite --bsrange=4k-128k --blockalign=4k \
	--verify=crc32c --verify_fatal=1 --fsync=64 --group_reporting --output=/tmp/fio.log || tail -30 /tmp/fio.log
same errors "$(counter pass errors)" 0
[ "$(counter pass writes)" -ge 16384 ] || fail "only $(counter pass writes) writes"
[ "$(counter pass flushes)" -ge 4 ] || fail "only $(counter pass flushes) flushes"

case_begin data-below
# What was written through the target is on the device below, at the same place.
noise 1048576 seed >/tmp/noise
check dd if=/tmp/noise of=/dev/mapper/pass bs=64k seek=1 oflag=direct conv=fsync status=none
check cmp -n 1048576 /tmp/noise <(dd if="$disk" bs=64k skip=1 iflag=direct status=none)
check cmp -n 1048576 /tmp/noise <(dd if=/dev/mapper/pass bs=64k skip=1 status=none)

case_begin discard
before=$(counter pass discards)
check blkdiscard -l 1048576 /dev/mapper/pass
[ "$(counter pass discards)" -gt "$before" ] || fail "no discard arrived"

case_begin messages
same echo "$(dmsetup message pass 0 echo one two three)" "one.two.three."
same "long answer" "$(dmsetup message pass 0 fill 50000 | wc -c)" 50001
same "no answer" "$(dmsetup message pass 0 sync)" ""
dmsetup message pass 0 unknown 2>/dev/null && fail "accepted an unknown message"

case_begin abandoned-reads
# More than there are bios: all of them have to come back by themselves.
for _ in $(seq 20); do check dmsetup message pass 0 drop 60; done
check dd if=/dev/mapper/pass of=/dev/null bs=1M count=8 iflag=direct status=none

case_begin suspend-under-load
fio --name=load --eta=never --filename=/dev/mapper/pass --direct=1 --ioengine=libaio --iodepth=16 --rw=randrw --bs=4k \
	--size=16M --verify=crc32c --runtime=20 --time_based --output=/tmp/fio.log &
load=$!
for _ in $(seq 30); do
	check dmsetup suspend pass
	check dmsetup status pass >/dev/null
	check dmsetup load pass --table "0 $size rvdo-pass $disk tasks 16"
	check dmsetup resume pass
done
check wait $load || tail -30 /tmp/fio.log
same table "$(dmsetup table pass)" "0 $size rvdo-pass $disk tasks 16"
same errors "$(counter pass errors)" 0
same references "$(references)" 1
check dmsetup remove pass

case_begin errors-from-below
need dmsetup create bad --table "0 $size error"
need test -b /dev/mapper/bad
need create pass /dev/mapper/bad
dd if=/dev/mapper/pass of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null && fail "read an erring device"
dd if=/dev/zero of=/dev/mapper/pass bs=4k count=1 oflag=direct 2>/dev/null && fail "wrote an erring device"
[ "$(counter pass errors)" -ge 2 ] || fail "$(counter pass errors) errors counted"
check dmsetup remove pass
check dmsetup remove bad

case_begin few-bios
# Four tasks more than bios: operations wait for a free one, and do not hang.
check dmsetup create few --table "0 $size rvdo-pass $disk tasks 8 in_flight 2"
check fio --name=few --eta=never --filename=/dev/mapper/few --direct=1 --ioengine=libaio --iodepth=32 --rw=randwrite --bs=64k \
	--size=8M --verify=crc32c --verify_fatal=1 --output=/tmp/fio.log || tail -30 /tmp/fio.log
check dmsetup remove few

case_begin unload
check rmmod $module
check rmmod brd
