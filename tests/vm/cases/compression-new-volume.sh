#!/bin/bash
# `upgrade on` at the first load of a new volume: it has the new layout before its first block is written, whatever the slab size.
# And blocks as dm-vdo's own proposal of version 2.0 would write them, of types 1 (LZ4) and 2 (zstd), are read.
. /job/lib.sh
. /job/volume.sh
. /job/compression.sh

disk=$(blank_disk /dev/vda)
model=/tmp/case/model
mib=256
mkdir -p /tmp/case
need modprobe dm-vdo
modprobe -a lz4 zstd
need load rvdo

# layout: version, flags, depot, and the blocks of a slab: all, data, reference counts, journal, algorithm map.
layout() { python3 - "$disk" <<'PYTHON'
import struct, sys
disk = open(sys.argv[1], "rb")
disk.seek(80)
start, = struct.unpack("<Q", disk.read(8))
disk.seek(start * 4096)
sb = disk.read(4096)
depot = struct.unpack_from("<I", sb, 293)[0]
size, data, references, journal = struct.unpack_from("<4Q", sb, 309)
print(f"depot {depot} slab {size} = {data} + {references} + {journal} + {size - data - references - journal}")
PYTHON
}
case_begin usual-slabs
# 2 GiB each, as LVM and vdoformat make them.
need vdoformat --force --logical-size=4G --uds-memory-size=0.25 "$disk" >/dev/null
need dmsetup create v --table "$(table rvdo "$disk" 4096 4096 compression on upgrade on)"
same volume "$(compress_stat_of v volume)" "67.1 0x00030001"
same "blocks" "$(counted v)" "lz4 0 zstd 0 deflate 0 unknown 0"
same "used" "$(stat_of v dataBlocksUsed)" 0
check dmsetup remove v
same layout "$(layout)" "depot 3 slab 524288 = 523934 + 130 + 159 + 65"

case_begin small-slabs
blank_disk "$disk" >/dev/null
need format "$disk" $mib
truncate -s 16M $model
line() { table rvdo "$disk" $mib 4096 compression on "$@"; }
need dmsetup create v --table "$(line upgrade on compressionType zstd)"
same volume "$(compress_stat_of v volume)" "67.1 0x02030001"
check dmsetup remove v
same layout "$(layout)" "depot 3 slab 8192 = 7966 + 2 + 223 + 1"
same "formats on the disk" "$(formats_on_disk "$disk")" "lz4 0 zstd 0 deflate 0 unknown 0"
# The option is no hindrance when the volume is upgraded.
need dmsetup create v --table "$(line upgrade on compressionType zstd)"
blocks 1024 "new zstd" 0 compressible >/tmp/case/part
check put /tmp/case/part /dev/mapper/v 0 $model
check ask v compression-type lz4
blocks 1024 "new lz4" 0 compressible >/tmp/case/part
check put /tmp/case/part /dev/mapper/v 4 $model
check holds /dev/mapper/v $model
counts=$(counted v)
check dmsetup remove v
same "formats on the disk" "$(formats_on_disk "$disk")" "$counts"
if dmsetup create v --table "$(table vdo "$disk" $mib 4096)" 2>/dev/null; then
	fail "the in-tree driver took the volume"
	dmsetup remove v
fi

case_begin blocks-of-the-proposal
# Every other LZ4 block is given version 2.0 and type 1, as dm-vdo would write it; zstd blocks have type 2 already. Prints how many
# there are of each.
proposed=$(python3 - "$disk" <<'PYTHON'
import struct, sys
disk = open(sys.argv[1], "r+b")
def block(number):
    disk.seek(number * 4096)
    return disk.read(4096)
start, = struct.unpack_from("<Q", block(0), 80)
sb = block(start)
slab_size, data, references, journal = struct.unpack_from("<4Q", sb, 309)
first, last = struct.unpack_from("<2Q", sb, 365)
seen = {"lz4": 0, "changed": 0, "zstd": 0}
for slab in range((last - first) // slab_size):
    origin = first + slab * slab_size
    area = origin + data + references + journal
    for entry in range(-(-data // 8064)):
        content = bytearray(block(area + entry))
        if not any(content):
            continue
        for within in range(min(8064, data - entry * 8064)):
            sector, index = divmod(within, 1008)
            at, shift = 512 * sector + 8 + index // 2, 4 * (index % 2)
            code = content[at] >> shift & 15
            if not code:
                continue
            number = origin + entry * 8064 + within
            compressed = block(number)
            sizes = struct.unpack_from("<14H", compressed, 8)
            if code == 2:
                # Version 2.0, type 2, and a zstd frame with its magic number.
                assert compressed[:8] == struct.pack("<2I", 2, 0) and compressed[36] == 2, compressed[:40]
                assert compressed[37:41] == bytes.fromhex("28b52ffd"), compressed[37:41]
                seen["zstd"] += 1
            elif code == 1:
                assert compressed[:8] == struct.pack("<2I", 1, 0)
                seen["lz4"] += 1
                if seen["lz4"] % 2 and sum(sizes) <= 4059:
                    disk.seek(number * 4096)
                    disk.write(struct.pack("<2I14HB", 2, 0, *sizes, 1) + compressed[36:4095])
                    content[at] = content[at] & ~(15 << shift) | 4 << shift
                    seen["changed"] += 1
        disk.seek((area + entry) * 4096)
        disk.write(content)
print(*seen.values())
PYTHON
)
read -r lz4 changed zstd <<<"$proposed"
echo "$lz4 blocks of LZ4, $changed of them of version 2.0 now; $zstd blocks of zstd"
if [ "$changed" -lt 30 ] || [ "$zstd" -lt 30 ]; then fail "too few: $proposed"; fi
blockdev --flushbufs "$disk"
same "formats on the disk" "$(formats_on_disk "$disk")" "$counts"
need dmsetup create v --table "$(line)"
check holds /dev/mapper/v $model
same "blocks" "$(counted v)" "$counts"
# Duplicates of what is in such blocks are compared with it and share it.
need dd if=$model of=/tmp/case/part bs=1M skip=4 count=4 status=none
check cmp /tmp/case/part <(dd if=/dev/mapper/v bs=1M skip=4 count=4 iflag=direct status=none)
check put /tmp/case/part /dev/mapper/v 8 $model
check holds /dev/mapper/v $model
# The in-tree driver reads no such blocks: they are in the way.
dmesg -c >/dev/null
if ask v downgrade 2>/dev/null; then fail "downgraded"; fi
dmesg | grep -q "$((changed + zstd)) blocks are in a format" || fail "not that many blocks in the way: $(dmesg | tail -2)"
stays_normal v
check dmsetup remove v
check rmmod rvdo
check rmmod dm-vdo
