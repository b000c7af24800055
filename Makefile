# SPDX-License-Identifier: GPL-2.0
#
# The goals:
#   make                  build rvdo.ko for the lab's kernel (sets the lab up first)
#   make KDIR=...         build for another kernel tree that carries Rust metadata
#   make modules_install  install what was built with KDIR=..., as kernel modules do
#   make test             everything that proves the project; one line of totals
#   make lab              only set the lab up: rootfs, kernel, guest
#   make check            ring check, rustfmt, shellcheck, clippy
#   make demo             what it does, on a few hundred megabytes of files
#   make bench            how it compares with the in-tree driver
#   make soak             run tests/vm/soak in the guest, then 49 plug pulls
#   make uml              run guest cases under lockdep and KASAN, in User-Mode Linux
#   make fmt              format the Rust sources
#   make clean            remove what builds left here; the lab stays

KDIR ?=
# What Debian's kernels were built with; another tree may want other values.
KMAKE_VARS ?= ARCH=x86 CROSS_COMPILE=x86_64-linux-gnu- CC=x86_64-linux-gnu-gcc-14

.PHONY: all modules test_modules modules_install install lab test check demo bench soak uml clippy fmt clean help

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

demo: modules
	scripts/demo

bench: modules
	scripts/bench

soak: modules test_modules
	scripts/vm-suite tests/vm/$@ --timeout 7200 --case-timeout 3600
	scripts/vm-pulls --pulls 35 drivers
	scripts/vm-pulls --pulls 14 formats

uml: modules test_modules
	scripts/uml-setup
	scripts/vm-suite tests/vm/cases --uml --timeout 7200 --case-timeout 3600

check: lab
	scripts/check

fmt: lab
	scripts/check-format --fix

clean:
	scripts/clean

help:
	@sed -n 's/^#   //p' Makefile
