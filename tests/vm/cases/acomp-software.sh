#!/bin/bash
# Compression requests on the kernel's own implementations.
. /job/lib.sh

modprobe -a deflate zstd lz4hc
need load rvdo_selftest

create() { dmsetup create check --table "0 8 rvdo-check $*"; }
ask() { dmsetup message check 0 "$@"; }

# Every eighth block does not compress; lz4 and zstd call that 22, deflate 28.
for expectation in "lz4 lz4-scomp 22" "lz4hc lz4hc-scomp 22" "deflate deflate-generic 28" "zstd zstd-generic 22"; do
	read -r algorithm driver error <<<"$expectation"
	case_begin "$algorithm"
	need create "$algorithm" 16
	same driver "$(ask driver)" "$algorithm $driver synchronous"
	counts=$(ask round_trips 64 8)
	case $counts in
	"same 448 compress_errors 64 decompress_errors 0 different 0 error "*) ;;
	*) fail "$counts" ;;
	esac
	echo "$algorithm: $counts (expected error $error)"
	same "in flight" "$(ask in_flight)" 0
	check cmp -n 4096 /dev/mapper/check /dev/zero
	check dmsetup remove check
done

case_begin one-request-for-many-tasks
need create lz4 1
same counts "$(ask round_trips 200 8)" "same 1400 compress_errors 200 decompress_errors 0 different 0 error 22"
check dmsetup remove check

case_begin names-of-drivers
need create deflate-generic 4 synchronous
same driver "$(ask driver)" "deflate deflate-generic synchronous"
check dmsetup remove check
if create no-such-algorithm 4 2>/dev/null; then fail "created"; fi

case_begin gone
check rmmod rvdo_selftest
