// SPDX-License-Identifier: GPL-2.0

//! rvdo: a device-mapper target for the volumes of dm-vdo, with a compression algorithm per block.
//!
//! This is the crate root: the module's declaration and the registration of its targets. See
//! `docs/` for what the rings are.

#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the wrappers come before the target that uses them"
)]

use kernel::prelude::*;

mod bindings;
pub mod kapi;
pub mod rt;

module! {
    type: Rvdo,
    name: "rvdo",
    authors: ["The rvdo authors"],
    description: "Deduplicating and compressing device-mapper target for dm-vdo volumes",
    license: "GPL",
}

struct Rvdo;

impl kernel::Module for Rvdo {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self)
    }
}
