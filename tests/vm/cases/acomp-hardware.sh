#!/bin/bash
# Compression requests on an asynchronous engine, when it works and when it does not.
. /job/lib.sh

modprobe -a deflate lz4
need load fake_iaa
need load rvdo_selftest

parameters=/sys/module/fake_iaa/parameters
create() { dmsetup create check --table "0 80000 rvdo-check $*"; }
ask() { dmsetup message check 0 "$@"; }
engine() { # NAME=VALUE...
	local setting
	for setting; do echo "${setting#*=}" >"$parameters/${setting%%=*}"; done
}
counter() { cat "$parameters/n_$1"; }
counts() { echo "same $1 compress_errors $2 decompress_errors $3 different $4 error $5"; }
# round_trips WHAT TASKS ROUNDS COUNT...: those counts; without the fifth, any error.
round_trips() {
	local what=$1 result
	result=$(ask round_trips "$2" "$3")
	shift 3
	case $# in
	4) same "$what" "${result% *}" "$(counts "$@" | sed 's/ $//')" ;;
	*) same "$what" "$result" "$(counts "$@")" ;;
	esac
}
# Waits for a condition that must come, for a minute at most.
eventually() {
	local _
	for _ in $(seq 600); do
		if "$@"; then return; fi
		sleep 0.1
	done
	fail "never: $*"
	return 1
}
in_flight_is() { [ "$(ask in_flight)" = "$1" ]; }
counter_is() { [ "$(counter "$1")" = "$2" ]; }
has_answered_since() { [ "$(counter answered)" -gt "$1" ]; }
uses() { cat "/sys/module/$1/refcnt"; }
is_unused() { [ "$(uses "$1")" = 0 ]; }

case_begin preferred
need create deflate 64
same driver "$(ask driver)" "deflate deflate-iaa asynchronous"
check dmsetup remove check
need create deflate 64 synchronous
same driver "$(ask driver)" "deflate deflate-generic synchronous"
check dmsetup remove check

case_begin same-data
need create deflate-iaa 64
for context in 0 1 2; do
	engine context=$context delay_us=50
	# E2BIG is 7.
	round_trips "context $context" 128 8 896 128 0 0 7
done
same "virtual addresses" "$(ask in_flight)" 0

case_begin late-and-out-of-order
engine context=0 delay_us=2000 reorder=1
round_trips "counts" 256 8 1792 256 0 0 7
engine context=2
round_trips "counts" 256 8 1792 256 0 0 7
check [ "$(counter out_of_order)" -gt 0 ]
engine context=0 delay_us=20 reorder=0
check dmsetup remove check

case_begin other-decoders
need create deflate-iaa 64 any deflate-generic
round_trips "engine to software" 128 8 896 128 0 0 7
check dmsetup remove check
need create deflate-generic 64 any deflate-iaa
# ENOSPC is 28.
round_trips "software to engine" 128 8 896 128 0 0 28
check dmsetup remove check

case_begin busy
need create deflate-iaa 64
engine busy_every=3
round_trips "counts" 128 8 896 128 0 0 7
check [ "$(counter busy)" -gt 0 ]
engine busy_every=0

case_begin failing
# One task, so that the engine's requests come in a known order.
before=$(counter failed)
engine fail_every=1 fail_errno=110 faulty=1
round_trips "compression" 1 64 0 64 0 0 110
engine faulty=2
round_trips "decompression" 1 64 0 8 56 0
engine fail_every=0 faulty=3
same "failed" "$(($(counter failed) - before))" 120

case_begin wrong-length
# A length beyond the buffer.
engine length_every=1 length_bias=5000 faulty=1
round_trips "too long" 1 64 0 64 0 0
# A stream that lacks its end does not decompress.
engine length_bias=-3
[[ "$(ask round_trips 1 64)" == "same 0 compress_errors 8 "* ]] || fail "cut streams: $(ask round_trips 1 64)"
# A short block is told by its length.
engine faulty=2 length_bias=-1
round_trips "short block" 1 64 0 8 0 56 7
engine length_every=0 faulty=3

case_begin corrupted
engine corrupt_every=1 faulty=2
round_trips "output of decompression" 1 64 0 8 0 56 7
engine faulty=1
result=$(ask round_trips 1 64)
[[ $result == "same 0 compress_errors 8 "* ]] || fail "corrupted streams: $result"
engine corrupt_every=0 faulty=3

case_begin disappears
engine gone=1
# ENODEV is 19.
round_trips "counts" 8 8 0 64 0 0 19
engine gone=0
round_trips "comes back" 8 8 56 8 0 0 7

case_begin abandoned-requests
engine hold_every=1
same "given up" "$(ask abandon 100)" "pending 100 ready 0"
# 64 have a request; the others had not got one.
same "left to the engine" "$(ask in_flight)" 64
eventually counter_is held 64
engine hold_every=0
eventually in_flight_is 0
round_trips "the pool is whole" 128 8 896 128 0 0 7
engine hold_every=1
same "given up" "$(ask abandon 64)" "pending 64 ready 0"
# Nobody waits for them; they keep both modules, until they are answered.
check dmsetup remove check
same "held" "$(counter in_flight)" 64
same "module in use" "$(uses rvdo_selftest)" 1
rmmod rvdo_selftest 2>/dev/null && fail "the module went under the engine"
rmmod fake_iaa 2>/dev/null && fail "the engine went with requests"
engine hold_every=0
eventually is_unused rvdo_selftest
eventually is_unused fake_iaa
same "all answered" "$(counter in_flight)" 0
# Again, with both modules unloaded as soon as that can be.
for round in 1 2 3 4 5; do
	need create deflate-iaa 64
	engine hold_every=1 context=$((round % 3))
	same "given up" "$(ask abandon 20)" "pending 20 ready 0"
	check dmsetup remove check
	engine hold_every=0
	eventually rmmod rvdo_selftest 2>/dev/null
	eventually rmmod fake_iaa 2>/dev/null
	need load fake_iaa
	need load rvdo_selftest
done

case_begin never-answers
need create deflate-iaa 64
engine hold_every=1
dd if=/dev/mapper/check of=/dev/null bs=4096 count=64 iflag=direct 2>/dev/null &
reader=$!
eventually in_flight_is 1
check kill -9 $reader
same "still the engine's" "$(ask in_flight)" 1
engine hold_every=0
wait $reader
eventually in_flight_is 0
round_trips "works again" 8 8 56 8 0 0 7

case_begin killed-readers
engine delay_us=3000 reorder=1
for _ in $(seq 10); do
	answered=$(counter answered)
	dd if=/dev/mapper/check of=/dev/null bs=64K iflag=direct 2>/dev/null &
	reader=$!
	eventually has_answered_since "$answered"
	check kill -9 $reader
	wait $reader
done
eventually in_flight_is 0
engine delay_us=20 reorder=0
round_trips "works" 64 8 448 64 0 0 7
check cmp -n 1048576 /dev/mapper/check /dev/zero
check dmsetup remove check
check rmmod fake_iaa

case_begin other-algorithm
need load fake_iaa alg=lz4 driver=lz4-engine
need create lz4 64
same driver "$(ask driver)" "lz4 lz4-engine asynchronous"
round_trips "counts" 128 8 896 128 0 0 22
check dmsetup remove check
check rmmod fake_iaa
check rmmod rvdo_selftest
