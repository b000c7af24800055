#!/bin/bash
# The in-tree driver recovers it, and is cut.
. /job/lib.sh
. /job/volume.sh
. /job/tools/pulls.sh

pull_boot SEED=2 PULL=3 LAST=2 CRASHED=rvdo RECOVER=vdo LOAD=vdo
