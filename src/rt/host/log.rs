// SPDX-License-Identifier: GPL-2.0

//! Log lines on the host: to standard error if `RVDO_LOG` is set, and into a buffer while a test captures them.

use std::cell::RefCell;
use std::fmt;
use std::sync::OnceLock;

thread_local! {
    static CAPTURED: RefCell<Option<std::vec::Vec<String>>> = const { RefCell::new(None) };
}

/// Takes one line. Used by the `rt` log macros.
pub fn line(level: &str, message: fmt::Arguments<'_>) {
    static LOUD: OnceLock<bool> = OnceLock::new();
    if *LOUD.get_or_init(|| std::env::var_os("RVDO_LOG").is_some()) {
        eprintln!("rvdo: {level}: {message}");
    }
    CAPTURED.with_borrow_mut(|captured| {
        if let Some(lines) = captured {
            lines.push(format!("{level}: {message}"));
        }
    });
}

/// Runs `f` and returns what it logged on this thread, one `level: message` string per line.
pub fn captured<R>(f: impl FnOnce() -> R) -> (R, std::vec::Vec<String>) {
    let outer = CAPTURED.replace(Some(std::vec::Vec::new()));
    let result = f();
    let lines = CAPTURED.replace(outer).unwrap_or_default();
    (result, lines)
}

#[allow(unused_macros, reason = "see below")]
macro_rules! rt_info {
    ($($arg:tt)+) => { $crate::rt::host::log::line("info", ::core::format_args!($($arg)+)) };
}
#[allow(unused_macros, reason = "see below")]
macro_rules! rt_warn {
    ($($arg:tt)+) => { $crate::rt::host::log::line("warn", ::core::format_args!($($arg)+)) };
}
#[allow(unused_macros, reason = "see below")]
macro_rules! rt_error {
    ($($arg:tt)+) => { $crate::rt::host::log::line("error", ::core::format_args!($($arg)+)) };
}
#[allow(
    unused_imports,
    reason = "not every crate with this surface logs at every level"
)]
pub(crate) use {rt_error, rt_info, rt_warn};
