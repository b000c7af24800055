// SPDX-License-Identifier: GPL-2.0

//! What the `kernel` crate lacks: device mapper, bios, block devices, compression and an executor.
//!
//! All unsafe code of the module lives below this module. Each wrapper says who keeps which promise and has no policy:
//! it does not decide to retry, to log or to fall back. Nothing in here knows the volume format.
//!
//! Lock order: the wrappers take no lock while they call out to their users, and every lock they own is a leaf.

pub mod acomp;
pub mod acomp_pool;
pub mod bio;
pub mod bio_queue;
pub mod block_device;
pub mod block_on;
pub mod crc32;
pub mod device_mapper;
pub mod executor;
pub mod late;
pub mod links_lock;
pub mod lock_class;
pub mod lz4_fast;
pub mod noio;
pub mod page;
pub mod page_io;
pub mod random;
pub mod timer;
pub mod wait_list;
pub mod wake_cell;

mod bio_stage;
mod task;
