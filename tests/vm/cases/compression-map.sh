#!/bin/bash
# The slab algorithm map: an in-tree volume gets it with the upgrade; it agrees with the headers of the blocks whatever is written
# and however the volume ends; the way back needs no look at the blocks, and the in-tree driver goes on with what it finds.
. /job/lib.sh
. /job/volume.sh

disk=$(blank_disk /dev/vda)
model=/tmp/case/model
mib=256
mkdir -p /tmp/case
need modprobe dm-vdo
modprobe -a lz4 deflate zstd
need load rvdo
line() { table rvdo "$disk" $mib 4096 compression on "$@"; }
# blocks_of FORMAT: compressed blocks of the format, as the volume counts them.
blocks_of() { ask v compress-stats | grep -o "compressed_blocks : {[^}]*" | grep -o "\b$1 : [0-9]*" | sed 's/.* : //'; }
counted() { echo "lz4 $(blocks_of lz4) zstd $(blocks_of zstd) deflate $(blocks_of deflate) unknown $(blocks_of unknown)"; }
# write_part N: one more part of what the model has, and all of it reads back.
write_part() {
	blocks 512 "map $1" 20 compressible >/tmp/case/part
	check put /tmp/case/part /dev/mapper/v "$((2 * $1))" $model
	check holds /dev/mapper/v $model
}

# on_disk: the same from the disk of a saved volume: from the block map and the headers of the blocks, each of them compared with
# its entry in the map of its slab.
on_disk() { python3 - "$disk" <<'PYTHON'
import struct, sys
disk = open(sys.argv[1], "rb")
def block(number):
    disk.seek(number * 4096)
    return disk.read(4096)
u32 = lambda data, at: struct.unpack_from("<I", data, at)[0]
u64 = lambda data, at: struct.unpack_from("<Q", data, at)[0]
geometry = block(0)
start = u64(geometry, 80)
sb = block(start)
assert u32(sb, 293) == 3 and u32(sb, 20) & 1 << 17, "no volume with maps"
nonce = u64(sb, 100)
slab_size, data, references, journal = (u64(sb, 309 + 8 * n) for n in range(4))
first, last = u64(sb, 365), u64(sb, 373)
roots, root_count = u64(sb, 418), u64(sb, 426)
def entries(number):
    page = block(number)
    if (u32(page, 0), u32(page, 4)) != (4, 1) or page[32] == 0 or u64(page, 8) != nonce:
        return
    for slot in range(812):
        head, low = struct.unpack_from("<BI", page, 36 + 5 * slot)
        if head & 15:
            yield head & 15, (head >> 4) << 32 | low
mapped = {}
def walk(number, level):
    for state, pbn in entries(number):
        if level:
            mapped[pbn] = 0
            walk(pbn, level - 1)
        elif pbn:
            mapped[pbn] = max(mapped.get(pbn, 0), state)
for root in range(root_count):
    walk(roots + root, 4)
names = {0: "none", 1: "lz4", 2: "zstd", 3: "deflate", 4: "lz4", 15: "unknown"}
count = dict.fromkeys(("lz4", "zstd", "deflate", "unknown"), 0)
wrong = 0
for pbn, state in mapped.items():
    code = 0
    if state > 1:
        header = block(pbn)
        code = 1 if header[0] == 1 else {1: 4, 2: 2, 16: 3}[header[36]]
    slab, sbn = divmod(pbn - first, slab_size)
    area = first + slab * slab_size + data + references + journal
    entry, within = divmod(sbn, 8064)
    sector, index = divmod(within, 1008)
    byte = block(area + entry)[512 * sector + 8 + index // 2]
    found = byte >> 4 if index % 2 else byte & 15
    wrong += found != code
    if names[code] in count:
        count[names[code]] += 1
print(*(f"{name} {number}" for name, number in count.items()))
if wrong:
    print(wrong, "of", len(mapped), "entries of maps are wrong")
PYTHON
}
# saved: the volume ends; what it counted is what is there.
saved() {
	local before
	before=$(counted)
	stays_normal v
	check dmsetup remove v
	same "blocks by format" "$(on_disk)" "$before"
	echo "$before"
}
no_driver_takes_it() {
	if dmsetup create v --table "$(table vdo "$disk" $mib 4096)" 2>/dev/null; then
		fail "the in-tree driver took the volume"
		dmsetup remove v
	fi
	dmesg | grep -q "version mismatch" || fail "no reason in: $(dmesg | tail -3)"
	if vdoaudit "$disk" >/tmp/audit.log 2>&1; then fail "vdoaudit took the volume"; fi
}

case_begin in-tree-volume-gets-its-map
need format "$disk" $mib
truncate -s 40M $model
need start vdo v "$disk" $mib 4096 compression on
blocks 2048 lz4 30 compressible >/tmp/case/part
check put /tmp/case/part /dev/mapper/v 0 $model
check drop /dev/mapper/v 3 1 $model
check dmsetup remove v
check audit "$disk"
need dmsetup create v --table "$(line)"
same "no map" "$(blocks_of lz4)" ""
check grep -q "slab algorithm map" <(ask v upgrade check)
check ask v upgrade
same volume "$(compress_stat_of v volume)" "67.1 0x00030001"
[ "$(blocks_of lz4)" -gt 50 ] || fail "blocks of before are not counted: $(counted)"
check holds /dev/mapper/v $model
saved
no_driver_takes_it

case_begin mixed-formats
need dmsetup create v --table "$(line compressionType deflate)"
check holds /dev/mapper/v $model
write_part 5
check ask v compression-type zstd
write_part 6
check ask v compression-type lz4
write_part 7
for format in lz4 zstd deflate; do
	[ "$(blocks_of $format)" -gt 20 ] || fail "no blocks of $format: $(counted)"
done
check drop /dev/mapper/v 11 2 $model
saved

case_begin dirty-volumes
# Taken away without a save: what was flushed is there, and so is what kind of block it is in.
need dmsetup create v --table "$(line compressionType zstd)"
write_part 8
check ask v compression-type deflate
write_part 9
check dmsetup suspend --noflush v
check dmsetup remove v
need dmsetup create v --table "$(line compressionType lz4)"
check holds /dev/mapper/v $model
write_part 10
until [ "$(mode_of v)" != recovering ]; do sleep 0.2; done
saved

case_begin way-back
need dmsetup create v --table "$(line compressionType lz4)"
dmesg -c >/dev/null
if ask v downgrade 2>/dev/null; then fail "downgraded with $(counted)"; fi
dmesg | grep -q "$(($(blocks_of zstd) + $(blocks_of deflate))) blocks are in a format" ||
	fail "not that many blocks in the way: $(dmesg | tail -2)"
dd if=$model of=/tmp/case/rest bs=1M skip=8 count=32 status=none
check blkdiscard --offset $((8 << 20)) --length $((32 << 20)) /dev/mapper/v
check put /tmp/case/rest /dev/mapper/v 8
check ask v downgrade
same volume "$(compress_stat_of v volume)" 67.0
same "no map" "$(blocks_of lz4)" ""
check holds /dev/mapper/v $model
check dmsetup remove v
check audit "$disk"
need start vdo v "$disk" $mib 4096 compression on
check holds /dev/mapper/v $model
write_part 11
check dmsetup remove v
check audit "$disk"

case_begin and-there-again
need dmsetup create v --table "$(line upgrade on compressionType deflate)"
check holds /dev/mapper/v $model
write_part 12
saved
check rmmod rvdo
check rmmod dm-vdo
