#!/bin/bash
# Recovered, verified, shut down.
. /job/lib.sh
. /job/volume.sh
. /job/tools/pulls.sh

pull_boot SEED=2 PULL=0 LAST=4 CRASHED=rvdo RECOVER=rvdo
check rmmod rvdo
