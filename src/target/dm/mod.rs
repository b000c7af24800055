// SPDX-License-Identifier: GPL-2.0

//! The binding to the kernel: a device-mapper target over a running volume.
//!
//! * `target.rs` the target that device-mapper calls, one per loaded table;
//! * `registry.rs` the running volumes, which outlive a reload of their table;
//! * `running.rs` one volume with its tasks, driven from process context;
//! * `env.rs`, `request.rs`, `codecs` the outside world of the engine, made from `kapi`.
//!
//! Lock order: a target's mutex around what its table asks for, then a running volume's mutex, then whatever the engine takes. The
//! registry's mutex is not held while a volume is opened, resumed or stopped.

#![expect(
    clippy::result_large_err,
    reason = "errors of loading a table carry the words of it, and are made once"
)]

mod codecs;
mod env;
mod registry;
mod request;
mod running;
mod target;

pub(crate) use self::registry::Registry;
pub(crate) use self::target::VdoTarget;
