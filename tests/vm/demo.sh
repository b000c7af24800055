#!/bin/bash
# What `make demo` shows: see scripts/demo. vda is blank, vdb is an archive of files.
. /job/lib.sh
. /job/volume.sh

modprobe ext4
disk=$(blank_disk /dev/vda)
mib=4096
started=$(seconds)
lines=()
step() { # WHAT COMMAND...
	local begin what=$1
	begin=$(seconds)
	shift
	need "$@"
	printf '  %-58s %6.1f s\n' "$what" "$(awk "BEGIN { print $(seconds) - $begin }")"
}
quiet() { "$@" >/tmp/quiet.log 2>&1 || { cat /tmp/quiet.log; return 1; }; }
copy() { tar -C /mnt -xf /dev/vdb && sync -f /mnt; }
same_files() { (cd /mnt && sha256sum -c SHA256SUMS >/tmp/sums.log 2>&1) || { grep -v ': OK' /tmp/sums.log | head; return 1; }; }
fresh_mount() { mount "$@" /dev/mapper/demo /mnt && echo 3 >/proc/sys/vm/drop_caches; }
row() { printf '  %-34s %14s\n' "$1" "$2"; }
mb() { awk "BEGIN { printf \"%.1f MB\", $1 * 4096 / 1e6 }"; }

case_begin our-driver
echo
step "vdoformat (the stock tool)" quiet vdoformat --logical-size=${mib}M --slab-bits=17 --uds-memory-size=0.25 "$disk"
step "insmod rvdo.ko" load rvdo
step "dmsetup create, compression on" start rvdo demo "$disk" $mib 4096 compression on maxDiscard 1024
# Few inodes: their tables are written as zeroes, which count as logical blocks in use.
step "mkfs.ext4" quiet mkfs.ext4 -q -E nodiscard -N 16384 /dev/mapper/demo
need mount /dev/mapper/demo /mnt
step "copy the files, sync" copy
step "verify their checksums" same_files
need umount /mnt
status=$(dmsetup status demo)
logical=$(stat_of demo logicalBlocksUsed)
data=$(stat_of demo dataBlocksUsed)
writes=$(ask demo stats | sed 's/.*biosIn : {//' | grep -o 'write : [0-9]*' | head -1 | sed 's/.* //')
valid=$(stat_of demo dedupeAdviceValid)
concurrent=$(stat_of demo concurrentDataMatches)
fragments=$(stat_of demo compressedFragmentsWritten)
packed=$(stat_of demo compressedBlocksWritten)
calls=$(compress_stat_of demo calls)
lines+=("$(row "logical (blocks in use)" "$(mb "$logical")")")
lines+=("$(row "physical (data blocks)" "$(mb "$data")")")
lines+=("$(row "saved" "$(awk "BEGIN { printf \"%.1f %%\", 100 - 100 * $data / $logical }")")")
lines+=("$(row "writes that came in" "$writes")")
lines+=("$(row "  duplicates, from the index" "$valid")")
lines+=("$(row "  duplicates of writes in flight" "$concurrent")")
lines+=("$(row "  given to the compressor" "$calls")")
lines+=("$(row "    stored compressed" "$fragments in $packed blocks")")
lines+=("$(row "    did not compress" "$(compress_stat_of demo incompressible)")")
lines+=("$(row "compressor's ratio" "$(compress_stat_of demo ratio)")")
lines+=("$(row "algorithm, driver" "$(compress_stat_of demo algorithm), $(compress_stat_of demo driver)")")
step "dmsetup remove (saves the volume)" dmsetup remove demo
step "vdoaudit finds nothing wrong" audit "$disk"

case_begin our-driver-again
step "load it again" start rvdo demo "$disk" $mib 4096 compression on
need fresh_mount
step "verify the checksums" same_files
need umount /mnt
need dmsetup remove demo
need rmmod rvdo

case_begin in-tree-driver
need modprobe dm-vdo
step "load it with the in-tree driver" start vdo demo "$disk" $mib 4096 compression on
need fresh_mount -o ro
step "verify the checksums" same_files
need umount /mnt
need dmsetup remove demo
need rmmod dm-vdo
step "vdoaudit finds nothing wrong" audit "$disk"
pass
echo
echo "  $(wc -l </tmp/sums.log) files through rvdo:"
printf '%s\n' "${lines[@]}"
echo "  status: $status"
echo "  all of it: $(awk "BEGIN { printf \"%.0f\", $(seconds) - $started }") s"
