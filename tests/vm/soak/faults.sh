#!/bin/bash
# A disk that fails below a volume: what the user sees, what the log says, and that the volume is sound after. Each
# class ends with the disk whole again: the volume is started (rebuilt, if it was left read-only), every block holds
# what was acknowledged, and the audit is clean.
. /job/lib.sh
. /job/volume.sh

need modprobe -a dm-flakey dm-delay dm-thin-pool
need load rvdo
seed=${SEED:-4} round=0 mib=256
echo "seed $seed"
record=/tmp/case/record
mkdir -p /tmp/case

# Where things are on a volume of 8 slabs, in blocks; what is behind it belongs to nobody.
slabs=8
physical=$((VOLUME_OVERHEAD_BLOCKS + slabs * SLAB_BLOCKS))
super_block="679128 1"
depot=679189
journal="$((depot + slabs * SLAB_BLOCKS)) 32768"
summary="$((physical - 64)) 64"
tail="$physical 8"
data='' slab_metadata=''
for slab in $(seq 0 $((slabs - 1))); do
	data+=" $((depot + slab * SLAB_BLOCKS)) $SLAB_DATA_BLOCKS"
	slab_metadata+=" $((depot + slab * SLAB_BLOCKS + SLAB_DATA_BLOCKS)) $((SLAB_BLOCKS - SLAB_DATA_BLOCKS))"
done
everything="0 $((physical + 8))"

# pieces TARGET [ARGUMENTS] -- START COUNT...: a table of the disk with that target for these blocks. @ is where they begin.
pieces() {
	local kind=$1 at=0 next=()
	shift 2
	next=("$@" $((physical + 8)) 0)
	set -- "${next[@]}"
	while [ $# -gt 0 ]; do
		if [ "$1" -gt $at ]; then echo "$((at * 8)) $((($1 - at) * 8)) linear $disk $((at * 8))"; fi
		if [ "$2" -gt 0 ]; then echo "$(($1 * 8)) $(($2 * 8)) ${kind//@/$disk $(($1 * 8))}"; fi
		at=$(($1 + $2))
		shift 2
	done
}
below() { # TABLE: what the volume's disk does from now on
	echo "$1" | dmsetup load low && dmsetup suspend --noflush --nolockfs low && dmsetup resume low
}
heal() { check below "$(pieces linear --)"; }
line() { echo "0 $((mib * 2048)) rvdo V4 /dev/mapper/low $physical 4096 4096 16380 maxDiscard 64 compression on"; }
log_lines() { dmesg -c | grep -v 'device-mapper\|flakey\|blk_update\|Buffer I/O\|quiet_error' | sed 's/^\[[^]]*\] */    log: /' | uniq -f 1 | head -"${1:-4}"; }

# reading: what a reader gets for the whole volume.
reading() { dd if=/dev/mapper/v of=/dev/null bs=32k iflag=direct status=none 2>&1 | sed 's/.*: //' | sort | uniq -c | xargs; }
# under_load [TABLE]: writers; in their midst the disk changes, or before if COLD is set.
under_load() {
	round=$((round + 1))
	if [ -n "${COLD:-}" ]; then
		check below "$1"
		set --
	elif [ -n "${1:-}" ]; then
		echo "$1" | dmsetup load low
		set -- --midway "dmsetup suspend --noflush --nolockfs low && dmsetup resume low"
	fi
	[ $round != 1 ] || set -- --new
	python3 /job/tools/crash_writer.py /dev/mapper/v $record "$seed" $round --operations "${OPERATIONS:-60}" "$@" >/tmp/writers
}
# sound [OPTION OF crash_verify]: the disk is whole: the volume starts, holds its data, and is left clean.
sound() {
	local mode how=started _
	need dmsetup create v --table "$(line)"
	mode=$(mode_of v)
	if [ "$mode" = read-only ]; then
		check dmsetup remove v
		check vdoforcerebuild /dev/mapper/volume
		how=rebuilt
		need dmsetup create v --table "$(line)"
	elif [ "$mode" = recovering ] || [ "$(stat_of v completeRecoveries)" != "${recoveries:-0}" ]; then
		how=recovered
	fi
	check python3 /job/tools/crash_verify.py /dev/mapper/v $record "$@" >/tmp/verified || cat /tmp/verified
	for _ in $(seq 600); do
		[ "$(mode_of v)" = recovering ] || break
		sleep 0.1
	done
	stays_normal v
	recoveries=$(stat_of v completeRecoveries)
	check dmsetup remove v
	check audit /dev/mapper/volume
	echo "    after: $how; $(cat /tmp/verified)"
	dmesg -c >/dev/null
}
# fault NAME MODE ERROR TABLE: the disk fails under load. MODE is the volume's after it; ERROR what writers see, or none. Either can be any.
fault() {
	local writers reader mode
	case_begin "$1"
	need dmsetup create v --table "$(line)"
	if [ -n "${WARM:-}" ]; then same "reader before" "$(reading)" ""; fi
	dmesg -c >/dev/null
	under_load "$4"
	writers=$(sort /tmp/writers | uniq -c | xargs)
	reader=$(reading)
	mode=$(mode_of v)
	echo "$1: writers: ${writers:-no error}; reader: ${reader:-no error}; mode: $mode"
	log_lines
	[ "$2" = any ] || same mode "$mode" "$2"
	if [ "$3" = any ]; then :; elif [ "$3" = none ]; then same writers "$writers" ""; else [[ $writers == *$3* ]] || fail "writers saw: $writers"; fi
	[[ $writers =~ ^([0-9]+\ (write|fua|discard|flush):\ (EIO|ENOSPC)\ ?)*$ ]] || fail "writers saw: $writers"
}

disk=$(loop_disk $(((physical + 8) * 4096)))
need dmsetup create low --table "$(pieces linear --)"
# The volume without what is behind it, for the tools.
need dmsetup create volume --table "0 $((physical * 8)) linear /dev/mapper/low 0"
need format /dev/mapper/volume $mib

case_begin no-fault
need dmsetup create v --table "$(line)"
check under_load
check dmsetup remove v
sound

failing() { pieces error -- "$@"; }
flaky() { pieces "flakey @ 0 1000000 1 $1" -- "${@:2}"; }
# shellcheck disable=SC2086 # lists of places
{
	# The block map is in slabs, too: a page that cannot be read makes it read-only. Nothing has been read by then.
	COLD=yes fault data-and-block-map-reads-fail read-only EIO "$(flaky error_reads $data)"
	heal
	check dmsetup remove v
	sound

	WARM=yes fault data-reads-fail normal none "$(flaky error_reads $data)"
	[ -n "$(reading)" ] || fail "readers saw nothing"
	heal
	same "reader after" "$(reading)" ""
	check dmsetup remove v
	sound

	# Whether a write fails that had been acknowledged, which makes it read-only, is chance.
	fault data-fails any EIO "$(failing $data)"
	heal
	check dmsetup remove v
	sound

	fault data-writes-and-flushes-fail any EIO "$(flaky error_writes $data)"
	heal
	check dmsetup remove v
	sound

	fault flushes-fail normal EIO "$(flaky error_writes $tail)"
	heal
	check dmsetup remove v
	sound

	fault journal-fails read-only EIO "$(failing $journal)"
	heal
	check dmsetup remove v
	sound

	# Slab journals and counters, the summary and the super block are written by a save at the latest: some of them before, as it happens.
	for place in slab_metadata summary super_block; do
		fault "${place//_/-}-fails" any any "$(failing ${!place})"
		dmsetup suspend v 2>/tmp/suspended
		echo "    suspend: status $?, $(tail -1 /tmp/suspended); mode: $(mode_of v)"
		same "mode after" "$(mode_of v)" read-only
		log_lines
		heal
		check dmsetup remove v
		sound
	done

	fault all-is-gone any EIO "$(failing $everything)"
	check dmsetup remove v
	heal
	sound

	fault writes-are-dropped normal none "$(flaky drop_writes $everything)"
	check dmsetup suspend --noflush v
	check dmsetup remove v
	heal
	sound --nothing-flushed

	OPERATIONS=6 fault late normal none "$(pieces "delay @ 100 @ 300 @ 500" -- $everything)"
	heal
	check dmsetup suspend --noflush v
	check dmsetup remove v
	sound
}

# starting NAME PLACE...: a volume that was shut down, and one that was not, on a disk that cannot read there.
starting() {
	local name=$1 left status
	shift
	for left in clean dirty; do
		case_begin "$name-cannot-be-read-$left"
		if [ $left = dirty ]; then
			need dmsetup create v --table "$(line)"
			check under_load
			check dmsetup suspend --noflush v
			check dmsetup remove v
		fi
		need below "$(flaky error_reads "$@")"
		dmesg -c >/dev/null
		dmsetup create v --table "$(line)" 2>/tmp/created
		status=$?
		echo "$name cannot be read, $left: create: status $status, $(head -1 /tmp/created | sed 's/.*: //')"
		if [ $status = 0 ]; then
			echo "    reader: $(reading); mode: $(mode_of v)"
			if [ "$name-$left" = journal-clean ]; then
				# Nothing in it counts, so it is not read.
				stays_normal v
			else
				[ -n "$(reading)" ] || [ "$(mode_of v)" = read-only ] || fail "nobody noticed"
			fi
			log_lines
			heal
			dmsetup remove v
		else
			log_lines
			dmsetup remove v 2>/dev/null
			heal
		fi
		sound
	done
}
# shellcheck disable=SC2086 # lists of places
{
	starting geometry 0 1
	starting super-block $super_block
	starting journal $journal
	starting summary $summary
	starting slab-metadata $slab_metadata
	starting data $data
}
check dmsetup remove volume
check dmsetup remove low

# A thin device below that has no more space: its pool is made larger, and all is well.
case_begin thin-pool-full
space=$(loop_disk 4G)
metadata=$(loop_disk 32M)
pool() { echo "0 $(($1 * 2048)) thin-pool $metadata $space 128 0 2 skip_block_zeroing error_if_no_space"; }
need dmsetup create pool --table "$(pool 145)"
need dmsetup message pool 0 "create_thin 0"
need dmsetup create low --table "0 $((physical * 8)) thin /dev/mapper/pool 0"
need dmsetup create volume --table "0 $((physical * 8)) linear /dev/mapper/low 0"
need format /dev/mapper/volume $mib
round=0 recoveries=0
need dmsetup create v --table "$(line)"
OPERATIONS=2000 under_load
echo "thin pool full: writers: $(sort /tmp/writers | uniq -c | xargs); reader: $(reading); mode: $(mode_of v); pool: $(dmsetup status pool | cut -d' ' -f4-)"
log_lines 6
grep -q ENOSPC /tmp/writers || grep -q EIO /tmp/writers || fail "the pool did not run out"
check dmsetup remove v
dmsetup load pool --table "$(pool 2048)" && dmsetup suspend --noflush pool && dmsetup resume pool
sound
check dmsetup remove volume
check dmsetup remove low
check dmsetup remove pool
check rmmod rvdo
