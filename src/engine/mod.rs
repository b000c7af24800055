// SPDX-License-Identifier: GPL-2.0

//! The VDO itself: everything that decides where a block goes and when it is safe.
//!
//! The engine is safe Rust that knows neither the kernel nor the host. It is written against
//! [`crate::rt`] (memory, locks, waiting) and generic over one [`env::Env`] (device, codec,
//! requests), so the same code runs inside the module and under the simulator.
//!
//! Dependencies point inward: modules here may use `core`, [`crate::rt`] and each other.

#![forbid(unsafe_code)]

pub mod admitted;
pub mod block_map;
pub mod dedupe;
pub mod depot;
pub mod env;
pub mod error;
pub mod format;
pub mod journal;
pub mod lbn_lock;
pub mod packer;
pub mod pin;
pub mod read_only;
pub mod reader;
pub mod recovery;
pub mod statistics;
pub mod store;
pub mod table;
pub mod units;
pub mod volume;
