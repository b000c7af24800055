// SPDX-License-Identifier: GPL-2.0

//! The face towards device-mapper: table lines, reloads, status, messages and their texts.
//!
//! What is here is pure: it turns words into values and values into words, and builds on the host
//! as well. The files that bind it to the kernel hold no rules of their own.

pub mod back_off;
pub mod compress_stats;
pub mod compression_type;
pub mod config;
#[cfg(MODULE)]
pub(crate) mod dm;
pub mod driver_list;
pub mod errno;
pub mod estimate;
pub mod figures;
pub mod messages;
pub mod new_volume;
pub mod reload;
pub mod self_test;
pub mod stats;
pub mod status;
pub mod table_error;
pub mod table_line;
pub mod table_options;
pub mod text;
pub mod upgrade_text;
