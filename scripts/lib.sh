# shellcheck shell=bash disable=SC2034
# Names and small functions shared by the scripts. Sourced, never run.

RVDO_TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
RVDO_CACHE=${RVDO_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rvdo}
ROOTFS=$RVDO_CACHE/trixie
# scripts/in-rootfs sets this: there the rootfs is / and the clone is /rvdo.
if [ -n "${RVDO_INSIDE:-}" ]; then ROOTFS=; fi

# The kernel the project was last tested with, and the series to fall back to.
KVER_TESTED=7.3.4+deb13-amd64
KVER_SERIES=7.3
# What set-up took instead when backports had it no more. KVER in the environment
# overrules both.
KVER_FILE=$RVDO_CACHE/instead-of-$KVER_TESTED
KVER_FIXED=${KVER:-}
if [ -z "$KVER_FIXED" ]; then
	KVER=$(cat "$KVER_FILE" 2>/dev/null || echo "$KVER_TESTED")
fi

# Everything made for one kernel version: seen from here and from inside the rootfs.
LAB=$ROOTFS/lab/$KVER
LAB_INSIDE=/lab/$KVER
KDIR_INSIDE=$LAB_INSIDE/kdir

# What the kernel's build has to be told so that it works as Debian's own did.
KMAKE_VARS=(ARCH=x86 CROSS_COMPILE=x86_64-linux-gnu- CC=x86_64-linux-gnu-gcc-14)

# With `set -e` a script ends silently at a failed command: say where.
trap 'printf "error: %s: line %s failed\n" "${0#"$RVDO_TOP/"}" "$LINENO" >&2' ERR

say() { printf '== %s\n' "$*" >&2; }
warn() { printf 'warning: %s\n' "$*" >&2; }
die() {
	printf 'error: %s\n' "$*" >&2
	exit 1
}

# use_host_network: apt's proxy and name resolution as on the host.
use_host_network() {
	local proxy=
	eval "$(apt-config shell proxy Acquire::http::Proxy)"
	if [ -n "$proxy" ] && [ "$proxy" != DIRECT ]; then export http_proxy=$proxy; fi
	if [ -d "$ROOTFS/etc" ]; then cp /etc/resolv.conf "$ROOTFS/etc/resolv.conf"; fi
}

# logged LOG COMMAND...: its output goes to LOG; now and then say how far it is; when
# it fails show the end of the log.
logged() {
	local log=$1 begin=$SECONDS process
	shift
	mkdir -p "$(dirname "$log")"
	"$@" >>"$log" 2>&1 &
	process=$!
	while kill -0 "$process" 2>/dev/null; do
		sleep 0.5
		if [ $((SECONDS - begin)) -ge 20 ]; then
			begin=$SECONDS
			printf '   ... %s\n' "$(tail -n 1 "$log" | cut -c 1-90)" >&2
		fi
	done
	wait "$process" || {
		tail -n 30 "$log" >&2
		die "failed: $*; all of its output is in $log"
	}
}

# usage_if_asked "$@": print the comment block at the head of the calling script.
usage_if_asked() {
	case "${1:-}" in
	-h | --help)
		sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"
		exit 0
		;;
	esac
}

# in_rootfs CMD...: run a command as root inside the rootfs, see scripts/in-rootfs.
in_rootfs() {
	if [ -n "${RVDO_INSIDE:-}" ]; then "$@"; else "$RVDO_TOP/scripts/in-rootfs" "$@"; fi
}

# move_into_rootfs SCRIPT "$@": run the calling script (named from the top of the
# clone) inside the rootfs from here on.
move_into_rootfs() {
	[ -n "${RVDO_INSIDE:-}" ] || exec "$RVDO_TOP/scripts/in-rootfs" "$@"
}
