# shellcheck shell=bash
# A boot of a chain of power cuts: `pull_boot NAME=VALUE...`. Sourced after lib.sh and volume.sh. The disks live on from boot to boot: /dev/vda
# is the volume, /dev/vdb has the record of what was issued and acknowledged.
#
#   PULL=N LAST=N   number of the cut that ends this boot (0: none, the chain ends), and of the one before
#   SEED=N          of everything
#   CRASHED=...     the driver that was cut before this boot: rvdo, vdo, or nothing in the first boot
#   RECOVER=...     the driver that starts what was left
#   LOAD=...        the driver that runs under load when the power is cut
#   SAVE=no         do not shut the recovered volume down before the load (RECOVER and LOAD are the same)
#   CUT=load        under load, after a number of operations that the seed tells
#   CUT=save        the same, while the volume is suspended with all that it has to write
#   CUT=start       while the volume is being recovered: nothing is verified in this boot
#   MIDWAY=COMMAND  at half of the operations: another algorithm, the upgrade
#   FORMATS=...     options of the table line for rvdo

pull_disk=/dev/vda
pull_record=/dev/vdb
pull_tools=/job/tools

pull_start() { # DRIVER
	if [ "$1" = rvdo ]; then
		# shellcheck disable=SC2086 # options
		start rvdo v "$pull_disk" 256 4096 compression on maxDiscard 64 ${FORMATS:-}
	else
		start vdo v "$pull_disk" 256 4096 compression on maxDiscard 64
	fi
}

# random LIMIT WHAT: a number below LIMIT that follows from the seed.
pull_random() { python3 -c 'import random, sys; print(random.Random(":".join(sys.argv[2:])).randrange(int(sys.argv[1])))' "$1" "$SEED" "$PULL" "$2"; }

pull_until_normal() {
	local _
	for _ in $(seq 1200); do
		if [ "$(mode_of v)" != recovering ]; then return; fi
		sleep 0.1
	done
	fail "recovering for two minutes"
}

pull_verify() {
	local begin format=
	begin=$(seconds)
	need pull_start "$RECOVER"
	echo "pull $LAST: cut under $CRASHED, $RECOVER started it in $(awk "BEGIN { printf \"%.1f\", $(seconds) - $begin }") s"
	# What is still being recovered serves already.
	need python3 $pull_tools/crash_verify.py /dev/mapper/v $pull_record "$([ "$CRASHED" = vdo ] && echo --in-tree)"
	pull_until_normal
	stays_normal v
	if [ "$RECOVER" = rvdo ]; then format=$(compress_stat_of v volume); fi
	if [ "${SAVE:-yes}" = no ]; then return; fi
	check dmsetup remove v
	if [ "${format:-67.0}" = 67.0 ]; then
		check audit "$pull_disk"
	else
		# The tools do not know it: once more from what was saved.
		echo "format: $format"
		need pull_start rvdo
		check python3 $pull_tools/crash_verify.py /dev/mapper/v $pull_record
		check dmsetup remove v
	fi
}

pull_boot() { # NAME=VALUE...
	local operations cut midway=() with=()
	declare -g "$@"
	need load rvdo
	modprobe -a lz4 deflate zstd
	if [[ "${CRASHED:-} ${RECOVER:-} ${LOAD:-}" == *\ vdo* || "${CRASHED:-}" = vdo ]]; then need modprobe dm-vdo; fi
	if [ -n "${CRASHED:-}" ] && [ "${CUT:-}" = start ]; then
		case_begin "pull-$PULL-while-it-is-started"
		pass
		result "POWER CUT in $(pull_random 3000 moment) ms"
		pull_start "$RECOVER"
		sleep 60
		fail "the power was not cut"
		exit "$STATUS_FAILED"
	fi
	if [ -n "${CRASHED:-}" ]; then
		case_begin "after-pull-$LAST"
		pull_verify
	else
		case_begin first-boot
		need blkdiscard --force "$pull_record"
		need format "$pull_disk" 256
	fi
	[ "$PULL" != 0 ] || return 0

	dmsetup info v >/dev/null 2>&1 || need pull_start "$LOAD"
	operations=$((5 + $(pull_random 120 operations)))
	cut="POWER CUT"
	if [ -n "${MIDWAY:-}" ]; then midway=(--midway "$MIDWAY"); fi
	if [ "${CUT:-load}" = save ]; then
		cut="POWER CUT in $(pull_random 3000 moment) ms"
		with=(--with "dmsetup suspend v")
	fi
	echo "pull $PULL: seed $SEED, $LOAD under load, ${CUT:-load}, after $operations operations of one process${MIDWAY:+, midway: $MIDWAY}"
	pass
	case_begin "pull-$PULL"
	[ -n "${CRASHED:-}" ] || midway+=(--new)
	python3 $pull_tools/crash_writer.py /dev/mapper/v $pull_record "$SEED" "$PULL" --operations "$operations" \
		"${midway[@]}" --cut "$cut" "${with[@]}"
	fail "the writers ended with status $?, and the power was not cut"
	exit "$STATUS_FAILED"
}
