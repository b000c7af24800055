#!/bin/bash
# Recovered, and cut again without a shutdown between, while all is written for a suspend.
. /job/lib.sh
. /job/volume.sh
. /job/tools/pulls.sh

pull_boot SEED=2 PULL=2 LAST=1 CRASHED=rvdo RECOVER=rvdo LOAD=rvdo SAVE=no CUT=save
