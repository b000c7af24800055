#!/bin/bash
# LZ4 by way of acomp beside the in-tree driver's direct calls: the data of the second disk is written and read by one after the
# other, deduplication off, in ROUNDS rounds. Not a test: run it by hand, on a machine that does nothing else, with
#   scripts/vm-run --module rvdo.ko --disk EMPTY:10G --disk DATA --case-timeout 3000 tests/vm/figures/lz4-acomp.sh
. /job/lib.sh
. /job/volume.sh
. /job/compression.sh

disk=/dev/vda
data=/dev/vdb
rounds=6
bytes=$(blockdev --getsize64 $data)
mib=$(((bytes >> 20) + 16))
mkdir -p /tmp/case
need modprobe dm-vdo
modprobe -a lz4
need load rvdo
case_begin rounds
# once TARGET: seconds to write and to read.
once() {
	local begin middle end
	blank_disk $disk >/dev/null
	need format $disk $mib
	need start "$1" v $disk $mib 4096 compression on deduplication off
	begin=$(seconds)
	check dd if=$data of=/dev/mapper/v bs=1M iflag=direct oflag=direct conv=fsync status=none
	middle=$(seconds)
	check dd if=/dev/mapper/v of=/dev/null bs=1M iflag=direct status=none
	end=$(seconds)
	check dmsetup remove v
	python3 -c 'import sys; a, b, c = map(float, sys.argv[1:]); print("%.2f %.2f" % (b - a, c - b))' "$begin" "$middle" "$end"
}
for round in $(seq $rounds); do
	if [ $((round % 2)) = 0 ]; then order="rvdo vdo"; else order="vdo rvdo"; fi
	for target in $order; do echo "$target $(once "$target")" | tee -a /tmp/case/times; done
done
check python3 - /tmp/case/times <<'PYTHON'
import sys
times = {"vdo": [], "rvdo": []}
for line in open(sys.argv[1]):
    name, write, read = line.split()
    times[name].append((float(write), float(read)))
def median(values):
    values = sorted(values)
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
for index, what in enumerate(("write", "read")):
    ratios = sorted(a[index] / b[index] for a, b in zip(times["rvdo"], times["vdo"]))
    middle = {name: median(t[index] for t in all) for name, all in times.items()}
    print(f"LZ4 {what}: in-tree {middle['vdo']:.2f} s, rvdo {middle['rvdo']:.2f} s (medians); "
          f"rvdo takes {median(ratios):.2f} times as long, {ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} rounds")
PYTHON
check rmmod rvdo
check rmmod dm-vdo
