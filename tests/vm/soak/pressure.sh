#!/bin/bash
# A guest with little memory left, swap on a volume, processors that come and go.
. /job/lib.sh
. /job/volume.sh

need load rvdo
disk=$(blank_disk /dev/vda)
seed=${SEED:-4}
mkdir -p /tmp/case
mib_of() { awk "/^$1:/ { print int(\$2 / 1024) }" /proc/meminfo; }
swapped_out() { awk '/^pswpout/ { print int($2 / 256) }' /proc/vmstat; }
need format "$disk" 2048
# What is reserved for huge pages can neither be used nor swapped: a small guest.
echo $((($(mib_of MemAvailable) - 600) / 2)) >/proc/sys/vm/nr_hugepages
echo "$(mib_of MemAvailable) MiB are left"

case_begin memory-pressure
need start rvdo v "$disk" 2048 4096 compression on maxDiscard 64
dmesg -c >/dev/null
touch /tmp/case/running
# Without swap: the hog leaves 40 MiB to all others, in the midst of the load.
check python3 /job/tools/crash_writer.py /dev/mapper/v /tmp/case/record "$seed" 1 --new --operations 400 \
	--midway "python3 /job/tools/hog.py --until-available 40 --while /tmp/case/running >/tmp/hog.log 2>&1 & while [ ! -s /tmp/hog.log ]; do sleep 0.2; done; cat /tmp/hog.log"
echo "available at the end: $(mib_of MemAvailable) MiB"
rm /tmp/case/running
for _ in $(seq 600); do grep -q checked /tmp/hog.log && break; sleep 0.1; done
check grep checked /tmp/hog.log
check python3 /job/tools/crash_verify.py /dev/mapper/v /tmp/case/record
same "processes killed" "$(dmesg | grep -c 'Out of memory')" 0
stays_normal v
check dmsetup remove v
check audit "$disk"

case_begin swap-on-the-volume
need start rvdo v "$disk" 2048 4096 compression on
need mkswap /dev/mapper/v >/dev/null
need swapon /dev/mapper/v
before=$(swapped_out)
check python3 /job/tools/hog.py --take $(($(mib_of MemAvailable) + 150)) --rounds 1
echo "$(($(swapped_out) - before)) MiB swapped out; $(stat_of v dataBlocksUsed) data blocks used"
[ $(($(swapped_out) - before)) -gt 100 ] || fail "hardly anything was swapped"
same "processes killed" "$(dmesg | grep -c 'Out of memory')" 0
check swapoff /dev/mapper/v
stays_normal v
check dmsetup remove v
check audit "$disk"

case_begin processors-come-and-go
echo 0 >/proc/sys/vm/nr_hugepages
need start rvdo v "$disk" 2048 4096 compression on maxDiscard 64
cpu=/sys/devices/system/cpu/cpu1/online
need test -w $cpu
fio --name=load --eta=never --filename=/dev/mapper/v --direct=1 --ioengine=libaio --iodepth=32 --numjobs=2 --rw=randwrite --bs=4k \
	--size=64M --offset_increment=64M --verify=crc32c --verify_fatal=1 --fsync=64 --buffer_compress_percentage=60 \
	--dedupe_percentage=20 --output=/tmp/fio.log &
load=$!
times=0
while kill -0 $load 2>/dev/null; do
	echo 0 >$cpu && echo 1 >$cpu && times=$((times + 1))
done
check wait $load || tail -30 /tmp/fio.log
echo "processor 1 went and came $times times; $(grep -E 'issued rwts' /tmp/fio.log | xargs)"
[ $times -gt 10 ] || fail "only $times times"
same online "$(cat $cpu)" 1
stays_normal v
check dmsetup remove v
check audit "$disk"
check rmmod rvdo
