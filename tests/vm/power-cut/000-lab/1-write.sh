#!/bin/bash
# The runner's power cut itself, on the bare disk: what was flushed is there afterwards.
. /job/lib.sh

case_begin write-before-the-cut
disk=/dev/vda
noise 1048576 cut >/tmp/noise
need dd if=/tmp/noise of="$disk" bs=64k oflag=direct conv=fsync,notrunc status=none
pass
power_cut
