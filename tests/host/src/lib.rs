// SPDX-License-Identifier: GPL-2.0

//! The engine and its runtime surface, built on the host: the same sources as in the module.

#[path = "../../../src/engine/mod.rs"]
pub mod engine;
#[path = "../../../src/rt/mod.rs"]
pub mod rt;
pub mod sim;
#[path = "../../../src/target/mod.rs"]
pub mod target;
