// SPDX-License-Identifier: GPL-2.0

//! rvdo: a device-mapper target for the volumes of dm-vdo, with a compression algorithm per block.
//!
//! This is the crate root: the module's declaration and the registration of its targets. `docs/` says what the rings are.

use kernel::prelude::*;

mod bindings;
pub mod engine;
pub mod kapi;
pub mod rt;
pub mod target;

use crate::kapi::device_mapper::Registration;
use crate::kapi::late::LateQueue;
use crate::kapi::lz4_fast::AcceleratedLz4;
use crate::target::dm::{Registry, VdoTarget};

module! {
    type: Rvdo,
    name: "rvdo",
    authors: ["The rvdo authors"],
    description: "Deduplicating and compressing device-mapper target for dm-vdo volumes",
    license: "GPL",
    params: {
        register_vdo: bool {
            default: false,
            description: "Register the target as vdo, too, so that LVM and the vdo tools find it",
        },
    },
}

struct Rvdo {
    // In the order in which they go.
    _vdo: Option<Registration<VdoTarget>>,
    _rvdo: Registration<VdoTarget>,
    _late: LateQueue,
    _lz4: AcceleratedLz4,
}

impl kernel::Module for Rvdo {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let late = LateQueue::new()?;
        let lz4 = AcceleratedLz4;
        let registry = Registry::new()?;
        // What may fail for its name comes first: a module that does not come to live must not have had a table.
        let vdo = if module_parameters::register_vdo.value() {
            let registration =
                Registration::new(c"vdo", module, registry.clone()).inspect_err(|_| {
                    pr_err!("the name vdo is taken: unload the dm_vdo module first\n");
                })?;
            Some(registration)
        } else {
            None
        };
        let rvdo = Registration::new(c"rvdo", module, registry)?;
        Ok(Self {
            _vdo: vdo,
            _rvdo: rvdo,
            _late: late,
            _lz4: lz4,
        })
    }
}
