#!/bin/bash
# What the in-tree driver left is recovered; then it is cut with blocks of two formats on their way.
. /job/lib.sh
. /job/volume.sh
. /job/tools/pulls.sh

pull_boot SEED=2 PULL=4 LAST=3 CRASHED=vdo RECOVER=rvdo LOAD=rvdo \
	MIDWAY="dmsetup message v 0 upgrade && dmsetup message v 0 compression-type deflate"
