// SPDX-License-Identifier: GPL-2.0

//! Log lines to the kernel's log.
//!
//! `format_args!` is core's, so that a type of the engine needs only core's `Display`.

macro_rules! rt_info {
    ($($arg:tt)+) => { ::kernel::pr_info!("{}\n", ::core::format_args!($($arg)+)) };
}
macro_rules! rt_warn {
    ($($arg:tt)+) => { ::kernel::pr_warn!("{}\n", ::core::format_args!($($arg)+)) };
}
macro_rules! rt_error {
    ($($arg:tt)+) => { ::kernel::pr_err!("{}\n", ::core::format_args!($($arg)+)) };
}
pub(crate) use {rt_error, rt_info, rt_warn};
