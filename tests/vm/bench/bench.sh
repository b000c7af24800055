# shellcheck shell=bash
# Both drivers in turn, each on a disk of its own with the same table line. Prints
# lines for scripts/bench: `BENCH VARIANT JOB TARGET VALUE UNIT KERNEL_CPU_MS MIB`
# and `MEMORY VARIANT TARGET MIB`.
#
# vda and vdb are blank; vdc holds the corpus. In /job/files/bench.conf: ROUNDS,
# SECONDS_PER_JOB, REGION_MIB.
. /job/lib.sh
. /job/volume.sh
. /job/files/bench.conf

readonly LOGICAL_MIB=10240
readonly DEVICE=/dev/mapper/bench
declare -A DISK=([rvdo]=/dev/vda [vdo]=/dev/vdb)

# The CPU time of each kernel thread so far: `PID TICKS`.
kernel_cpu() {
	cat /proc/[0-9]*/stat 2>/dev/null |
		awk '{ pid = $1; sub(/.*\) /, ""); if ($2 == 2) print pid, $12 + $13 }'
}
# What they have used since measure_begin, in ms, but for those that have ended.
kernel_cpu_since() {
	kernel_cpu | awk 'NR == FNR { before[$1] = $2; next } { sum += $2 - before[$1] } END { print sum * 10 }' /tmp/cpu-before -
}

measure_begin() {
	kernel_cpu >/tmp/cpu-before
	time_before=$EPOCHREALTIME
}
# measure_end VARIANT JOB TARGET UNIT MIB [VALUE]: VALUE is MiB/s if it is not given.
measure_end() {
	local now=$EPOCHREALTIME cpu
	cpu=$(kernel_cpu_since)
	awk -v variant="$1" -v job="$2" -v target="$3" -v unit="$4" -v mib="$5" -v value="${6:-}" \
		-v seconds="$now $time_before" -v cpu="$cpu" 'BEGIN {
		split(seconds, s)
		if (value == "") value = mib / (s[1] - s[2])
		printf "BENCH %s %s %s %.2f %s %d %.1f\n", variant, job, target, value, unit, cpu, mib
	}'
}

# copy VARIANT JOB TARGET DD_ARGUMENT...: the corpus, measured.
copy() {
	local variant=$1 job=$2 target=$3
	shift 3
	measure_begin
	need dd bs=1M status=none "$@"
	measure_end "$variant" "$job" "$target" MiB/s "$CORPUS_MIB"
}

# load_with VARIANT TARGET RW BLOCK_KIB [FIO_ARGUMENT...]
load_with() {
	local variant=$1 target=$2 rw=$3 block=$4 line ops value unit=MiB/s
	shift 4
	measure_begin
	line=$(fio --name=bench --filename="$DEVICE" --offset=1G --size="${REGION_MIB}M" --direct=1 --ioengine=libaio \
		--iodepth=32 --randseed="$ROUND" --norandommap --rw="$rw" --bs="${block}k" --output-format=terse "$@") || fail "fio $rw $block"
	ops=$(echo "$line" | awk -F';' '{ printf "%.2f", $8 + $49 }')
	if [ "$block" = 4 ]; then unit=IOPS value=$ops; else value=$(awk "BEGIN { print $ops * $block / 1024 }"); fi
	measure_end "$variant" "fio-$rw-${block}k" "$target" "$unit" \
		"$(echo "$line" | awk -F';' '{ print ($6 + $47) / 1024 }')" "$value"
}

await_index() {
	local tries
	for tries in $(seq 100); do
		case $(dmsetup status bench) in *opening*) sleep 0.2 ;; *) return ;; esac
	done
	fail "no index after $tries tries"
}

bench() { # TARGET VARIANT OPTION...
	local target=$1 variant=$2 disk=${DISK[$1]} rw timed=(--time_based "--runtime=$SECONDS_PER_JOB") before
	shift 2
	blkdiscard --force "$disk" 2>/dev/null
	need format "$disk" "$LOGICAL_MIB"
	before=$(memory_kib)
	if [ "$target" = rvdo ]; then need load rvdo; else need modprobe dm-vdo; fi
	need start "$target" bench "$disk" "$LOGICAL_MIB" 4096 "$@"
	await_index
	echo "MEMORY $variant $target $((($(memory_kib) - before) / 1024))"

	copy "$variant" corpus-write "$target" if=/tmp/corpus of="$DEVICE" oflag=direct conv=notrunc,fsync
	copy "$variant" corpus-write-again "$target" if=/tmp/corpus of="$DEVICE" seek=512 oflag=direct conv=notrunc,fsync
	copy "$variant" corpus-read "$target" if="$DEVICE" of=/dev/null count="$CORPUS_MIB" iflag=direct
	cmp -n $((CORPUS_MIB << 20)) "$DEVICE" /tmp/corpus || fail "$target gives other data back"

	# The first pass maps the region.
	load_with "$variant" "$target" write 64
	for rw in randwrite:64 write:4 randwrite:4 read:64 randread:64 read:4 randread:4; do
		load_with "$variant" "$target" "${rw%:*}" "${rw#*:}" "${timed[@]}"
	done
	load_with "$variant" "$target" randrw 4 --rwmixread=70 "${timed[@]}"

	echo 3 >/proc/sys/vm/drop_caches
	need dmsetup remove bench
	if [ "$target" = rvdo ]; then need rmmod rvdo; else need rmmod dm_vdo; fi
}

case_begin both-drivers
CORPUS_MIB=$(($(blockdev --getsize64 /dev/vdc) >> 20))
need dd if=/dev/vdc of=/tmp/corpus bs=1M status=none
# shellcheck disable=SC2153 # ROUNDS comes from the environment
for ROUND in $(seq "$ROUNDS"); do
	targets=(rvdo vdo)
	if [ $((ROUND % 2)) = 0 ]; then targets=(vdo rvdo); fi
	for variant in deduplication:on deduplication:off; do
		for target in "${targets[@]}"; do
			bench "$target" "$variant" compression on deduplication "${variant#*:}"
		done
	done
done
