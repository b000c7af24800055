// SPDX-License-Identifier: GPL-2.0

//! Raw bindings to the parts of the kernel that the `kernel` crate does not bind.
//!
//! Generated at build time, see `bindgen.mk`. Only [`kapi`](crate::kapi) and the kernel back end of
//! [`rt`](crate::rt) use them.

#![allow(
    clippy::all,
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    improper_ctypes,
    unknown_lints,
    unnecessary_transmutes,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_imports
)]

use kernel::ffi;
use pin_init::{MaybeZeroable, Zeroable};

// `bindgen_parameters` blocks these so that they keep the width of a pointer.
type __kernel_size_t = usize;
type __kernel_ssize_t = isize;
type __kernel_ptrdiff_t = isize;

// SAFETY: `__BindgenBitfieldUnit<Storage>` is a newtype around `Storage`.
unsafe impl<Storage> Zeroable for __BindgenBitfieldUnit<Storage> where Storage: Zeroable {}

include!(concat!(env!("RVDO_GENERATED"), "/bindings_generated.rs"));

/// Compile-time comparison of the bindings with the running kernel's own type information.
mod abi {
    use super::*;

    include!(concat!(env!("RVDO_GENERATED"), "/abi_generated.rs"));
}
