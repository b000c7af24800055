#!/bin/bash
# The power is cut four times under a volume; see tests/vm/tools/pulls.sh. Here for the first time.
. /job/lib.sh
. /job/volume.sh
. /job/tools/pulls.sh

pull_boot SEED=2 PULL=1 LAST=0 LOAD=rvdo
