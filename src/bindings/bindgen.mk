# SPDX-License-Identifier: GPL-2.0
#
# Bindings to the kernel, made with the kernel's own flags, and assertions on their layout.
#
# A Kbuild sets `rvdo-generated` to the directory below $(obj) that the files shall go to, includes this file, and makes
# its Rust object depend on $(rvdo-generated-files). rustc finds the files through $RVDO_GENERATED.

rvdo-bindings-src := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
rvdo-generated-obj := $(obj)/$(rvdo-generated)
rvdo-generated-files := $(rvdo-generated-obj)/bindings_generated.rs $(rvdo-generated-obj)/abi_generated.rs

export RVDO_GENERATED := $(abspath $(rvdo-generated-obj))

# Without the kernel's parameters bindgen succeeds and gives wrong bindings, so there is no going on without.
rvdo-bindgen-parameters := $(firstword $(wildcard $(objtree)/rust/bindgen_parameters $(srctree)/rust/bindgen_parameters))
rvdo-require-parameters = $(if $(rvdo-bindgen-parameters),,$(error No rust/bindgen_parameters in $(objtree) or \
	$(srctree): this kernel tree cannot build Rust modules with bindings of their own))

# Only rust/ may use the unstable `cfi_encoding`: drop the options that bring it in.
rvdo-bindgen-options = $(shell grep -Ev '^\#|^$$|cfi_encoding' $(rvdo-bindgen-parameters))

# What gcc takes and clang does not; see bindgen_skip_c_flags in the kernel's rust/Makefile, which is not installed.
rvdo-bindgen-skip-flags := -mno-fp-ret-in-387 -mpreferred-stack-boundary=% -mskip-rax-setup -mgeneral-regs-only \
	-mindirect-branch=thunk-extern -mindirect-branch-register -mfunction-return=thunk-extern -mrecord-mcount \
	-mindirect-branch-cs-prefix -mstack-protector-guard% -mno-pointers-to-nested-functions -mdirect-extern-access \
	-fconserve-stack -falign-jumps=% -falign-loops=% -fno-ipa-cp-clone -fno-ipa-sra -fno-partial-inlining \
	-fno-reorder-blocks -fno-allow-store-data-races -fzero-call-used-regs=% -fno-stack-clash-protection \
	-fno-inline-functions-called-once -fsanitize=bounds-strict -fstrict-flex-arrays=% -fmin-function-alignment=% \
	-fzero-init-padding-bits=% -fdiagnostics-show-context -fdiagnostics-show-context=% --param=% \
	-fno-isolate-erroneous-paths-dereference

rvdo-bindgen-c-flags = $(filter-out $(rvdo-bindgen-skip-flags), $(c_flags)) \
	-w --target=x86_64-linux-gnu -fno-builtin -D__BINDGEN__ -DMODULE

rvdo-allow-types := completion|bio|bio_vec|bvec_iter|block_device|blk_status_t|blk_opf_t|file|req_op \
	dm_dev|dm_target|target_type|queue_limits|iterate_devices_callout_fn|status_type_t
rvdo-allow-functions := rvdo_.* \
	complete|bio_(init|uninit|endio|add_virt_nofail)|submit_bio_noacct|blk_status_to_errno|fput \
	dm_(get|put)_device|dm_(un)?register_target|dm_noflush_suspending|dm_table_(get_mode|get_md|device_name|event)|dm_set_target_max_io_len
rvdo-allow-vars := RUST_CONST_HELPER_.* DM_TARGET_.*|DM_MAPIO_.*
# Additions of the second set of helpers, if there is one.
-include $(rvdo-bindings-src)/allow_b.mk

quiet_cmd_rvdo_bindgen = BINDGEN $@
      cmd_rvdo_bindgen = \
	$(BINDGEN) $< $(rvdo-bindgen-options) --rust-target 1.85 \
		--use-core --with-derive-default --ctypes-prefix ffi --no-layout-tests \
		--no-debug '.*' --enable-function-attribute-detection --formatter prettyplease \
		$(patsubst %,--allowlist-type '%',$(rvdo-allow-types)) \
		$(patsubst %,--allowlist-function '%',$(rvdo-allow-functions)) \
		$(patsubst %,--allowlist-var '%',$(rvdo-allow-vars)) \
		-o $@ -- $(rvdo-bindgen-c-flags); \
	sed -Ei 's/pub const RUST_CONST_HELPER_([a-zA-Z0-9_]*)/pub const \1/g' $@

$(rvdo-generated-obj)/bindings_generated.rs: $(rvdo-bindings-src)/bindings_helper.h $(rvdo-bindgen-parameters) FORCE
	$(rvdo-require-parameters)$(call if_changed_dep,rvdo_bindgen)

# The kernel's own idea of the layouts, from its type information.
rvdo-btf := $(firstword $(wildcard $(objtree)/vmlinux /sys/kernel/btf/vmlinux))
rvdo-btf-modules := $(wildcard /lib/modules/$(KERNELRELEASE)/kernel/drivers/md/dm-mod.ko*)
rvdo-gen-abi-asserts := $(rvdo-bindings-src)/../../scripts/gen-abi-asserts

# A kernel without type information (scripts/uml-setup builds one) has nothing to compare with.
quiet_cmd_rvdo_abi = ABI     $@
      cmd_rvdo_abi = $(if $(CONFIG_DEBUG_INFO_BTF),$(PYTHON3) $(rvdo-gen-abi-asserts) $< $(rvdo-btf) $(rvdo-btf-modules),:) > $@

$(rvdo-generated-obj)/abi_generated.rs: $(rvdo-bindings-src)/abi.list $(rvdo-gen-abi-asserts) FORCE
	$(call if_changed,rvdo_abi)

targets += $(rvdo-generated)/bindings_generated.rs $(rvdo-generated)/abi_generated.rs
clean-files += $(rvdo-generated)/bindings_generated.rs $(rvdo-generated)/abi_generated.rs
