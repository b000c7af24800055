#!/bin/bash
# The executor and the kernel back end of the engine's runtime surface. A lost
# wake-up shows as a case that does not end.
. /job/lib.sh

need load rvdo_selftest
need dmsetup create check --table "0 8 rvdo-check lz4 1"
ask() { dmsetup message check 0 "$@"; }

case_begin rt
[[ "$(ask rt)" == "rt "*" failed 0" ]] || fail "$(ask rt)"

case_begin ring
same "one token" "$(ask ring 100 100 1)" "events 10000 tasks 0"
same "many tokens" "$(ask ring 500 100 250)" "events 50000 tasks 0"
same "one task" "$(ask ring 1 10000 1)" "events 10000 tasks 0"

case_begin timers
same "soft interrupts" "$(ask timers 300 50)" "events 15000 tasks 0"

same "sleeps cut short" "$(ask naps 100 20)" "events 2000 tasks 0"

case_begin late-wakers
same "woken after the end" "$(ask late 500)" "events 500 tasks 0 woken 500"

case_begin crowd
same "impatient waiters" "$(ask crowd 300 200)" "events 60000 tasks 0 permits 2"

case_begin several-callers
for caller in 1 2 3 4; do
	ask ring 200 100 20 >"/tmp/ring.$caller" &
done
same "and one more" "$(ask crowd 100 100 | sed 's/events [0-9]* //')" "tasks 0 permits 2"
wait
for caller in 1 2 3 4; do
	same "caller $caller" "$(sed 's/ tasks.*//' "/tmp/ring.$caller")" "events 20000"
done

case_begin many-loads
for _ in $(seq 20); do
	check dmsetup create again --table "0 8 rvdo-check lz4 64"
	check dmsetup remove again
done
check dmsetup remove check
check rmmod rvdo_selftest
