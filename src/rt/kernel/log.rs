// SPDX-License-Identifier: GPL-2.0

//! Log lines to the kernel's log.
//!
//! `format_args!` is core's, so that a type of the engine needs only core's `Display`.

#[allow(unused_macros, reason = "see below")]
macro_rules! rt_info {
    ($($arg:tt)+) => { ::kernel::pr_info!("{}\n", ::core::format_args!($($arg)+)) };
}
#[allow(unused_macros, reason = "see below")]
macro_rules! rt_warn {
    ($($arg:tt)+) => { ::kernel::pr_warn!("{}\n", ::core::format_args!($($arg)+)) };
}
#[allow(unused_macros, reason = "see below")]
macro_rules! rt_error {
    ($($arg:tt)+) => { ::kernel::pr_err!("{}\n", ::core::format_args!($($arg)+)) };
}
#[allow(
    unused_imports,
    reason = "not every crate with this surface logs at every level"
)]
pub(crate) use {rt_error, rt_info, rt_warn};
