#!/bin/bash
. /job/lib.sh

case_begin read-after-the-cut
noise 1048576 cut >/tmp/noise
check cmp -n 1048576 /tmp/noise /dev/vda
