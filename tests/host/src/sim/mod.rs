// SPDX-License-Identifier: GPL-2.0

//! A world for the engine in which one seed decides everything.
//!
//! * [`executor`] - runs tasks in an order that the seed picks, and finds deadlocks;
//! * [`disk`] - a disk with a volatile cache, torn writes and faults, on which power can fail at
//!   any moment;
//! * [`codec`], [`request`], [`env`] - the rest of what the engine is connected to;
//! * [`model`] - what each block may contain, now and after a crash;
//! * [`workload`] - users;
//! * [`audit`] - a second opinion on what is on the medium, which shares no code with the engine;
//! * [`mkfs`] - formats small volumes;
//! * [`harness`] - puts it all together; [`seeds`] runs it for many seeds;
//! * [`scenario`] - lives of volumes that the seed makes up.
//!
//! Everything happens on one thread. Mutexes are there to satisfy the compiler and are never
//! contended.

pub mod audit;
pub mod codec;
pub mod content;
pub mod crash;
pub mod disk;
pub mod env;
pub mod executor;
pub mod foreign;
pub mod harness;
pub mod image;
pub mod mkfs;
pub mod model;
pub mod oplog;
pub mod request;
pub mod rng;
pub mod scenario;
pub mod seeds;
pub mod workload;
