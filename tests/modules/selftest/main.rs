// SPDX-License-Identifier: GPL-2.0

//! Exercises the wrappers of the rvdo module in a running kernel, without a volume.
//!
//! Registers the device-mapper targets `rvdo-pass`, see [`pass`], and `rvdo-check`, see [`check`], whose messages start
//! further checks.

#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "not every wrapper is exercised here"
)]

use kernel::prelude::*;

mod acomp_tests;
#[path = "../../../src/bindings/mod.rs"]
mod bindings;
mod check;
mod executor_tests;
#[path = "../../../src/kapi/mod.rs"]
pub mod kapi;
mod pass;
#[path = "../../../src/rt/mod.rs"]
pub mod rt;
mod rt_tests;

use check::Check;
use kapi::device_mapper::Registration;
use kapi::late::LateQueue;
use pass::Pass;

module! {
    type: Selftest,
    name: "rvdo_selftest",
    authors: ["The rvdo authors"],
    description: "Exercises the kernel wrappers of rvdo",
    license: "GPL",
    params: {
        second_name: bool {
            default: false,
            description: "Register the target as rvdo-pass2, too",
        },
    },
}

struct Selftest {
    _pass: Registration<Pass>,
    _second: Option<Registration<Pass>>,
    _check: Registration<Check>,
    _late: LateQueue,
}

impl kernel::Module for Selftest {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let late = LateQueue::new()?;
        let nothing = kernel::sync::Arc::new((), GFP_KERNEL)?;
        let second = match module_parameters::second_name.value() {
            true => Some(Registration::new(c"rvdo-pass2", module, nothing.clone())?),
            false => None,
        };
        Ok(Self {
            _pass: Registration::new(c"rvdo-pass", module, nothing.clone())?,
            _second: second,
            _check: Registration::new(c"rvdo-check", module, nothing.clone())?,
            _late: late,
        })
    }
}
