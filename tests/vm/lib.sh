# shellcheck shell=bash
# What guest cases are written with. A case file begins with `. /job/lib.sh`.
#
#   case_begin NAME     opens a case; the one before it ends here
#   check COMMAND...    the case fails unless the command succeeds; goes on
#   need COMMAND...     the same, but a failure ends the file
#   fail WHY            the case failed; goes on
#   pass                ends the case now (case_begin and the file's end do it too)
#   same WHAT A B       check that two strings are equal
#
# A case gives one line: `PASS name` or `FAIL name: why` (the first reason).

STATUS_FAILED=99
CASE_FILE=${CASE_FILE:-}
case_name=
case_failed=
file_failed=

# A line of its own, even after a program that left one open (fio's progress).
result() { printf '\n%s\n' "$*"; }

case_begin() {
	pass
	case_name=${CASE_FILE:+$CASE_FILE/}$1
	case_failed=
}

pass() {
	if [ -n "$case_name" ] && [ -z "$case_failed" ]; then result "PASS $case_name"; fi
	case_name=
}

fail() {
	if [ -z "$case_failed" ]; then
		result "FAIL ${case_name:-$CASE_FILE}: $*"
	else
		echo "also failed: $*"
	fi
	case_failed=yes
	file_failed=yes
}

check() {
	"$@" && return
	local status=$?
	fail "status $status from: $*"
	return 1
}

need() { check "$@" || exit "$STATUS_FAILED"; }

same() { [ "$2" = "$3" ] || fail "$1: '$2' is not '$3'"; }

# End of a case file: close the open case; a clean exit after a failure is none.
case_file_end() {
	local status=$?
	if [ "$status" = 0 ]; then
		pass
		[ -z "$file_failed" ] || exit "$STATUS_FAILED"
	fi
}
if [ -n "$CASE_FILE" ]; then
	trap case_file_end EXIT
	# Out of time: the case that was open did not pass.
	trap 'trap - EXIT; exit 143' TERM
fi

seconds() { cut -d' ' -f1 /proc/uptime; }

# power_cut [MARKER]: a line for the runner's --kill-on, then wait for the power cut.
power_cut() {
	result "${1:-POWER CUT}"
	sleep 60
	fail "the power was not cut"
	exit "$STATUS_FAILED"
}

# load NAME [PARAMETER=VALUE...]: one of our modules, with what it depends on.
load() {
	local file=/job/modules/$1.ko depends
	shift
	depends=$(modinfo -F depends "$file" | tr ',' ' ')
	# shellcheck disable=SC2086 # a list of names
	if [ -n "$depends" ]; then modprobe -a $depends; fi
	insmod "$file" "$@"
}

# Disks. Each prints the device's path. Their content ends with the case file.
loop_disk() { # SIZE, as truncate understands it: sparse, in memory
	local file
	mkdir -p /tmp/case
	file=$(mktemp /tmp/case/disk.XXXXXX)
	truncate -s "$1" "$file"
	losetup --show --find "$file"
}
ram_disk() { # SIZE in MiB: a brd device
	modprobe brd rd_nr=1 rd_size=$(($1 * 1024))
	echo /dev/ram0
}
blank_disk() { # [DEVICE]: the virtio disk (default: the first), discarded
	blkdiscard --force "${1:-/dev/vda}"
	echo "${1:-/dev/vda}"
}

sectors() { blockdev --getsz "$1"; }

# noise SIZE SEED: that many bytes that do not compress, the same for the same seed.
noise() { python3 -c 'import random, sys
r, n = random.Random(sys.argv[2]), int(sys.argv[1])
while n: k = min(n, 1 << 20); sys.stdout.buffer.write(r.randbytes(k)); n -= k' "$1" "$2"; }
