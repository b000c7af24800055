#!/bin/bash
# The tools read our device and our volumes; messages and what they answer.
. /job/lib.sh
. /job/volume.sh

need load rvdo register_vdo=1
disk=$(slab_disk 6)
need format "$disk" 1024
need start vdo v "$disk" 1024 4096 compression on
blocks 2048 tools 25 compressible >/tmp/case/data
check put /tmp/case/data /dev/mapper/v 0
check dd if=/dev/mapper/v of=/dev/null bs=1M count=4 iflag=direct status=none

case_begin vdostats
check vdostats --verbose v >/tmp/vdostats
# shown LABEL: its value.
shown() { sed -n "s/^ *$1 *: *//p" /tmp/vdostats; }
for pair in "data blocks used=dataBlocksUsed" "overhead blocks used=overheadBlocksUsed" "logical blocks used=logicalBlocksUsed" \
	"physical blocks=physicalBlocks" "logical blocks=logicalBlocks" "compressed fragments written=compressedFragmentsWritten" \
	"dedupe advice valid=dedupeAdviceValid" "slab count=slabCount" "instance=instance" "entries indexed=entriesIndexed"; do
	value=$(shown "${pair%%=*}")
	[ -n "$value" ] || fail "no '${pair%%=*}'"
	same "${pair%%=*}" "$value" "$(stat_of v "${pair##*=}")"
done
same "mode" "$(shown 'operating mode')" normal
same "slabs" "$(shown 'slab count')" 6
same "version" "$(shown 'version')" 36
vdostats v | tail -1

case_begin same-labels-as-the-in-tree-driver
ask v stats | grep -oE '[a-zA-Z0-9]+ : |[{}]' >/tmp/labels.rvdo
check dmsetup remove v
check rmmod rvdo
need modprobe dm-vdo
need start vdo v "$disk" 1024 4096 compression on
ask v stats | grep -oE '[a-zA-Z0-9]+ : |[{}]' >/tmp/labels.vdo
config=$(ask v config)
# The index of the in-tree driver opens while the volume is in use already.
status=$(dmsetup status v | sed 's/ opening / online /')
limits() { cat "/sys/dev/block/$(dmsetup info -c --noheadings -o major,minor v)/queue/"{logical_block_size,physical_block_size,minimum_io_size,optimal_io_size,discard_granularity,discard_max_bytes,discard_max_hw_bytes,write_cache,fua,max_sectors_kb,max_hw_sectors_kb,max_segments,rotational} | xargs; }
theirs=$(limits)
check dmsetup remove v
check rmmod dm-vdo
check cmp /tmp/labels.rvdo /tmp/labels.vdo
need load rvdo register_vdo=1
need start vdo v "$disk" 1024 4096 compression on
same config "$(ask v config)" "$config"
same status "$(dmsetup status v)" "$status"
same "queue limits" "$(limits)" "$theirs"

case_begin messages
check ask v compression off
same "compression" "$(dmsetup status v | cut -d' ' -f8)" offline
check ask v COMPRESSION On
same "compression" "$(dmsetup status v | cut -d' ' -f8)" online
check ask v index-disable
same "index" "$(dmsetup status v | cut -d' ' -f7)" offline
check ask v index-enable
same "index" "$(dmsetup status v | cut -d' ' -f7)" online
check ask v dump
check ask v dump all
check ask v dump-on-shutdown
# EINVAL is 22.
for words in unknown "stats now" compression "compression maybe" "compression on off" "dump everything" ""; do
	# shellcheck disable=SC2086 # words
	strace -f -e trace=ioctl -o /tmp/strace dmsetup message v 0 $words >/dev/null 2>&1 && fail "accepted: '$words'"
	[ -z "$words" ] || grep -q 'DM_TARGET_MSG.*EINVAL' /tmp/strace || fail "'$words': $(grep DM_TARGET_MSG /tmp/strace)"
done
# Answers longer than the buffer that dmsetup gives first.
[ "$(ask v stats | wc -c)" -gt 2000 ] || fail "short statistics"
same "last character" "$(ask v stats | tail -c 2)" "}"

case_begin compress-stats
calls=$(compress_stat_of v calls)
blocks 1024 compress-stats 0 compressible >/tmp/case/squeezed
blocks 256 noise 0 >/tmp/case/noise
check put /tmp/case/squeezed /dev/mapper/v 16
check put /tmp/case/noise /dev/mapper/v 32
ask v compress-stats
same calls $(($(compress_stat_of v calls) - calls)) 1280
same incompressible "$(compress_stat_of v incompressible)" 256
same errors "$(compress_stat_of v errors)" 0
same algorithm "$(compress_stat_of v algorithm)" lz4
same driver "$(compress_stat_of v driver)" lz4-scomp
same saved "$(compress_stat_of v saved_bytes)" $(($(compress_stat_of v input_bytes) - $(compress_stat_of v payload_bytes)))
[ "$(compress_stat_of v ratio_x100)" -gt 300 ] || fail "ratio $(compress_stat_of v ratio)"
check ask v compression off
before=$(compress_stat_of v calls)
check put /tmp/case/noise /dev/mapper/v 48
same "calls while off" "$(compress_stat_of v calls)" "$before"
[[ "$(ask v selftest)" == *"driver: lz4-scomp "*"result: same"* ]] || fail "$(ask v selftest)"
for algorithm in lz4hc deflate zstd; do
	[[ "$(ask v selftest $algorithm)" == *"algorithm: $algorithm "*"result: same"* ]] || fail "$algorithm: $(ask v selftest $algorithm)"
done
ask v selftest no-such-thing 2>/dev/null && fail "accepted"

case_begin offline-tools
check dmsetup remove v
check audit "$disk"
check vdodumpmetadata "$disk" /tmp/case/metadata
check test -s /tmp/case/metadata
check vdolistmetadata "$disk" >/tmp/vdolistmetadata
check vdodumpblockmap "$disk" >/tmp/vdodumpblockmap
head -3 /tmp/vdodumpblockmap
same "mapped blocks" "$(grep -c 'height 0' /tmp/vdodumpblockmap)" $((2048 + 1024 + 256 + 256))
check rmmod rvdo
