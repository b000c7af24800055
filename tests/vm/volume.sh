# shellcheck shell=bash disable=SC2034
# What cases about volumes share. Sourced after lib.sh: `. /job/volume.sh`.
#
# Both drivers can be loaded at a time, as `rvdo` and `vdo`; a volume belongs to one.

# Blocks before, between and after the slabs of a volume with the smallest index.
readonly VOLUME_OVERHEAD_BLOCKS=712021
readonly SLAB_BLOCKS=8192
# Of a slab of the smallest size, what holds data.
readonly SLAB_DATA_BLOCKS=7966

# slab_disk SLABS: a sparse disk in memory that takes exactly that many slabs.
slab_disk() { loop_disk $(((VOLUME_OVERHEAD_BLOCKS + $1 * SLAB_BLOCKS) * 4096)); }

# format DISK LOGICAL_MIB
format() {
	vdoformat --force --logical-size="$2M" --slab-bits=13 --uds-memory-size=0.25 "$1" >/tmp/vdoformat.log 2>&1 ||
		{ cat /tmp/vdoformat.log; return 1; }
}

# table TARGET DISK LOGICAL_MIB LOGICAL_BLOCK_SIZE [OPTION...]: a table line.
table() {
	local target=$1 disk=$2 mib=$3 lbs=$4
	shift 4
	echo "0 $((mib * 2048)) $target V4 $disk $(($(sectors "$disk") / 8)) $lbs 32768 16380${*:+ $*}"
}

# start TARGET NAME DISK LOGICAL_MIB LOGICAL_BLOCK_SIZE [OPTION...]
start() {
	local target=$1 name=$2
	shift 2
	dmsetup create "$name" --table "$(table "$target" "$@")"
}

# audit DISK: the tools find nothing wrong with a volume that was saved.
audit() { vdoaudit "$1" >/tmp/audit.log 2>&1 || { cat /tmp/audit.log; return 1; }; }

ask() { dmsetup message "$1" 0 "${@:2}"; }

# stat_of NAME FIELD: a number of the `stats` message, the first of that name.
stat_of() { ask "$1" stats | grep -o "\b$2 : [0-9]*" | head -1 | sed 's/.* //'; }
# compress_stat_of NAME FIELD: a value of the `compress-stats` message.
compress_stat_of() { ask "$1" compress-stats | grep -o "\b$2 : [^,]*" | head -1 | sed 's/.* : //'; }
mode_of() { dmsetup status "$1" | cut -d' ' -f5; }

# stays_normal NAME: no error made the volume read-only.
stays_normal() { same "mode of $1" "$(mode_of "$1")" normal; }

# blocks COUNT SEED DUPLICATES_PERCENT [compressible]: 4096-byte blocks, the same for the same arguments.
blocks() { python3 -c 'import random, sys
count, seed, duplicates, kind = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
r, seen = random.Random(seed), []
for _ in range(count):
    if seen and r.randrange(100) < duplicates:
        block = seen[r.randrange(len(seen))]
    else:
        n = r.randrange(200, 1500) if kind == "compressible" else 4096
        block = (r.randbytes(n) + b"some text that repeats " * 200)[:4096]
        seen.append(block)
    sys.stdout.buffer.write(block)' "$1" "$2" "$3" "${4:-noise}"; }

# put FILE DEVICE AT_MIB [MODEL]: writes it there, and into a model of what the device must hold.
put() {
	dd if="$1" of="$2" bs=1M seek="$3" oflag=direct conv=notrunc,fsync status=none || return
	if [ -n "${4:-}" ]; then dd if="$1" of="$4" bs=1M seek="$3" conv=notrunc status=none; fi
}

# holds DEVICE MODEL [AT_MIB]: the device has what the model has, read past the page cache.
holds() {
	cmp "$2" <(dd if="$1" bs=1M skip="${3:-0}" count=$((($(stat -c %s "$2") + 1048575) / 1048576)) iflag=direct status=none)
}

# drop DEVICE AT_MIB MIB [MODEL]: discards it, and zeroes the model there.
drop() {
	blkdiscard --offset $(($2 << 20)) --length $(($3 << 20)) "$1" || return
	if [ -n "${4:-}" ]; then dd if=/dev/zero of="$4" bs=1M seek="$2" count="$3" conv=notrunc status=none; fi
}

# memory_kib: memory in use that no cache gives back, nor a processor's list of free pages.
memory_kib() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
	awk '/^MemTotal:/ { all = $2 } /^MemFree:|^Buffers:|^Cached:/ { all -= $2 } /^ +count:/ { all -= 4 * $2 } END { print all }' \
		/proc/meminfo /proc/zoneinfo
}

# refused WHY TABLE: the table is refused, with this text in the kernel's log, and nothing stays behind.
refused() {
	local why=$1
	dmesg -c >/dev/null
	if dmsetup create refused --table "$2" 2>/dev/null; then
		fail "accepted: $2"
		dmsetup remove refused
	fi
	dmesg | grep -qF -- "$why" || fail "no '$why' in: $(dmesg | tail -3)"
	dmsetup remove refused 2>/dev/null && fail "a device stayed after '$why'"
	same "references after '$why'" "$(cat /sys/module/rvdo/refcnt)" "${REFERENCES:-0}"
}
