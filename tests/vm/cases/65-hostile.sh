#!/bin/bash
# Volumes whose numbers were pushed to extremes, with checksums that agree: refused, or used as far
# as they can be, with a message and without a complaint from the kernel.
. /job/lib.sh
. /job/volume.sh

need load rvdo
disk=$(slab_disk 4)
need format "$disk" 1024
# A volume that has something in each of its structures.
need start rvdo v "$disk" 1024 4096 compression on
blocks 2048 base 20 compressible >/tmp/case/base
check put /tmp/case/base /dev/mapper/v 0
check dmsetup remove v
check audit "$disk"

cat >/tmp/case/patch.py <<'END'
# patch.py DISK WHAT...: puts the volume back as it was, then writes the WHATs into it:
#   geometry@OFFSET=BYTES, super@OFFSET=BYTES   with the checksum that goes with them
#   block:NUMBER@OFFSET=BYTES                    as they are
# BYTES: u8:N u32:N u64:N hex:... fill:BYTE*COUNT
import os, sys, zlib
SUPER = 679128
def value(text):
    kind, _, rest = text.partition(":")
    if kind == "fill":
        byte, count = rest.split("*")
        return bytes([int(byte)]) * int(count)
    return bytes.fromhex(rest) if kind == "hex" else int(rest, 0).to_bytes(int(kind[1:]) // 8, "little")
with open(sys.argv[1], "r+b", buffering=0) as disk:
    saved = "/tmp/case/saved"
    os.makedirs(saved, exist_ok=True)
    for number in os.listdir(saved):
        disk.seek(int(number) * 4096)
        disk.write(open(f"{saved}/{number}", "rb").read())
    for what in sys.argv[2:]:
        place, _, new = what.partition("=")
        name, _, offset = place.partition("@")
        number = {"geometry": 0, "super": SUPER}[name] if ":" not in name else int(name.split(":")[1])
        disk.seek(number * 4096)
        block = bytearray(disk.read(4096))
        if not os.path.exists(f"{saved}/{number}"):
            open(f"{saved}/{number}", "wb").write(block)
        new = value(new)
        block[int(offset):int(offset) + len(new)] = new
        if ":" not in name:
            crc = {"geometry": 97, "super": 434}[name]
            if int(offset) != crc:
                block[crc:crc + 4] = zlib.crc32(block[:crc], 0xFFFFFFFF).to_bytes(4, "little")
        disk.seek(number * 4096)
        disk.write(block)
    os.fsync(disk.fileno())
END
patch() { python3 /tmp/case/patch.py "$disk" "$@"; blockdev --flushbufs "$disk"; }
# damaged WHY WHAT...: refused with this text in the log.
damaged() {
	local why=$1
	shift
	check patch "$@"
	refused "$why" "$(table rvdo "$disk" 1024 4096)"
	echo "$*: $(dmesg | grep 'device-mapper: table' | tail -1 | sed 's/.*: rvdo: //')"
}
max=u64:0xffffffffffffffff

# Where things are on this volume.
roots=679129
summary=$(($(sectors "$disk") / 8 - 64))

case_begin geometry
damaged "no VDO volume here" geometry@0=hex:00
damaged "geometry block is damaged" geometry@97=u32:1
damaged "geometry block version mismatch" geometry@12=u32:6
damaged "" geometry@80=$max
damaged "" geometry@80=u64:0
damaged "" geometry@56=$max
damaged "nonce" geometry@32=$max
damaged "" geometry@88=u32:0x7fffffff

case_begin super-block
damaged "super block is damaged" super@434=u32:1
damaged "version mismatch" super@24=u32:68
damaged "volume state 99 is unknown" super@40=u32:99
damaged "" super@60=$max
damaged "" super@68=$max
for slab_size in 0 3 0x1000000 0x8000000000000000; do damaged "" super@76=u64:$slab_size; done
for journal_size in 0 3 0x8000000000000000; do damaged "" super@84=u64:$journal_size; done
for slab_journal in 0 8192 0xffffffffffffffff; do damaged "" super@92=u64:$slab_journal; done

case_begin layout
damaged "" super@128=$max super@136=$max super@144=u8:5
damaged "" super@144=u8:255
damaged "" super@145=u8:9
damaged "" super@146=$max
damaged "" super@162=$max
damaged "" super@146=u64:0x7fffffffffffffff super@162=u64:0x7fffffffffffffff

case_begin components
damaged "" super@265=$max
damaged "" super@309=u64:0
damaged "" super@317=$max
damaged "" super@325=$max
damaged "" super@333=u64:0
damaged "" super@365=$max
damaged "" super@373=$max
damaged "" super@381=u8:200
damaged "" super@418=$max
damaged "" super@426=$max

# used WHAT...: may be refused or not; whatever is done with it the kernel does not complain.
used() {
	check patch "$@"
	dmesg -c >/dev/null
	if start rvdo v "$disk" 1024 4096 compression on 2>/dev/null; then
		dmsetup status v
		ask v stats >/dev/null || fail "no statistics after $*"
		dd if=/dev/mapper/v of=/dev/null bs=64k count=128 iflag=direct status=none 2>/dev/null
		dd if=/tmp/case/base of=/dev/mapper/v bs=64k count=16 seek=64 oflag=direct status=none 2>/dev/null
		blkdiscard --length $((2 << 20)) /dev/mapper/v 2>/dev/null
		dd if=/tmp/case/base of=/dev/mapper/v bs=64k count=16 skip=20 oflag=direct status=none 2>/dev/null
		echo "$*: used, $(mode_of v); $(dmesg | grep 'rvdo: ' | tail -1 | sed 's/.*rvdo: //')"
		check dmsetup remove v
	else
		echo "$*: refused; $(dmesg | grep 'rvdo: ' | tail -1 | sed 's/.*rvdo: //')"
		dmsetup remove v 2>/dev/null
	fi
	same references "$(cat /sys/module/rvdo/refcnt)" 0
	need format "$disk" 1024
	rm -rf /tmp/case/saved
	need start rvdo v "$disk" 1024 4096 compression on
	check put /tmp/case/base /dev/mapper/v 0
	check dmsetup remove v
}

case_begin usage-counters
patch super@40=u32:2
rm -rf /tmp/case/saved
used super@273=$max super@281=$max
used super@273=u64:0 super@281=u64:0

case_begin slab-summary
used block:$summary@0=fill:255*64
used block:$summary@0=fill:127*64

case_begin slab-metadata
# Slab 0: its reference counts and its journal.
first=$((roots + 60))
counts=$((first + SLAB_DATA_BLOCKS))
used block:$counts@8=fill:255*504
used block:$counts@8=fill:0*504
used block:$((counts + 2))@0=fill:255*4096 block:$((counts + 3))@0=fill:255*4096

case_begin block-map
# Roots whose entries point everywhere.
used block:$roots@36=fill:255*4060 block:$((roots + 1))@36=fill:241*4060
used block:$roots@16=$max block:$((roots + 2))@0=u32:9
# A root that is its own child.
used block:$roots@36=u32:$((roots << 8 | 1))
check rmmod rvdo
