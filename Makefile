# SPDX-License-Identifier: GPL-2.0
#
#   make                  build rvdo.ko for the lab's kernel (sets the lab up first)
#   make KDIR=...         build for another kernel tree that carries Rust metadata
#   make modules_install  install what was built with KDIR=..., as kernel modules do
#   make test             everything that proves the project; one line of totals
#   make lab              only set the lab up: rootfs, kernel, guest
#   make check            ring check, rustfmt, shellcheck, clippy
#   make clean

KDIR ?=
# What Debian's kernels were built with; another tree may want other values.
KMAKE_VARS ?= ARCH=x86 CROSS_COMPILE=x86_64-linux-gnu- CC=x86_64-linux-gnu-gcc-14

.PHONY: all modules test_modules modules_install install lab test check clippy fmt clean help

all: modules

ifeq ($(KDIR),)

modules test_modules clippy: lab
	scripts/build-modules $@

modules_install install:
	@echo "error: name the kernel to install for: make KDIR=/lib/modules/\$$(uname -r)/build $@" >&2; exit 1

else

modules:
	$(MAKE) -C $(KDIR) M=$(CURDIR) $(KMAKE_VARS) modules

modules_install install:
	$(MAKE) -C $(KDIR) M=$(CURDIR) $(KMAKE_VARS) modules_install

endif

lab:
	scripts/lab-setup

test:
	scripts/test

check: lab
	scripts/check

fmt: lab
	scripts/check-format --fix

clean:
	scripts/clean

help:
	@sed -n 's/^#   //p' Makefile
