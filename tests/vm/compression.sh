# shellcheck shell=bash
# What cases about compression share. Sourced after volume.sh: `. /job/compression.sh`.

# engine NAME=VALUE...: parameters of fake_iaa.
engine() {
	local setting
	for setting; do echo "${setting#*=}" >"/sys/module/fake_iaa/parameters/${setting%%=*}"; done
}
engine_did() { cat "/sys/module/fake_iaa/parameters/n_$1"; }

# figure NAME DRIVER FIELD: a value of the group of a driver in compress-stats.
figure() { ask "$1" compress-stats | grep -o "\b$2 : {[^}]*" | grep -o "\b$3 : [0-9]*" | head -1 | sed 's/.* : //'; }

# blocks_of NAME FORMAT: compressed blocks of the format, as the volume counts them.
blocks_of() { ask "$1" compress-stats | grep -o "compressed_blocks : {[^}]*" | grep -o "\b$2 : [0-9]*" | sed 's/.* : //'; }
counted() { echo "lz4 $(blocks_of "$1" lz4) zstd $(blocks_of "$1" zstd) deflate $(blocks_of "$1" deflate) unknown $(blocks_of "$1" unknown)"; }

# formats_on_disk DISK: the same from the disk of a saved volume: from the block map and the headers of the blocks, each of them
# compared with its entry in the map of its slab.
formats_on_disk() { python3 - "$1" <<'PYTHON'
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

# all_packed NAME: waits until every write is done but for those that wait in the packer for company. A flush before that has what is
# still being compressed stored as it is.
all_packed() {
	local _ busy waiting
	for _ in $(seq 3000); do
		busy=$(stat_of "$1" currentVIOsInProgress)
		waiting=$(stat_of "$1" compressedFragmentsInPacker)
		[ "$busy" = "$waiting" ] && return
		sleep 0.1
	done
	fail "after five minutes $busy requests are in progress, $waiting of them in the packer"
}

# eventually COMMAND...: waits for what has to come.
eventually() {
	local _
	for _ in $(seq 600); do
		"$@" && return
		sleep 0.1
	done
	fail "never: $*"
}
