// SPDX-License-Identifier: GPL-2.0

//! The kernel back end of `rt`: the same promises that the host tests check.
//!
//! Message: `rt` answers `rt <checks> failed <n>`, and logs a line for each that failed.

use core::fmt::Write;

use kernel::prelude::*;

use crate::kapi::device_mapper::ResultText;
use crate::rt::{self, spin_lock, Arc, Box, Page, PagePair, Vec};

struct Checks {
    made: u32,
    failed: u32,
}

impl Checks {
    fn that(&mut self, what: &str, holds: bool) {
        self.made = self.made.wrapping_add(1);
        if !holds {
            self.failed = self.failed.wrapping_add(1);
            rt::error!("rt check failed: {what}");
        }
    }
}

/// See the [module documentation](self).
pub(crate) fn all(out: &mut ResultText<'_>) -> Result {
    let mut checks = Checks { made: 0, failed: 0 };
    vectors(&mut checks)?;
    pages(&mut checks)?;
    others(&mut checks)?;
    write!(out, "rt {} failed {}", checks.made, checks.failed)?;
    Ok(())
}

fn vectors(checks: &mut Checks) -> Result {
    let mut vec = Vec::with_capacity(3)?;
    while vec.len() < vec.capacity() {
        checks.that("room", vec.push_within_capacity(vec.len()).is_ok());
    }
    let full = vec.len();
    checks.that("no room", vec.push_within_capacity(99) == Err(99));
    checks.that("swap_remove past the end", vec.swap_remove(full).is_none());
    checks.that("swap_remove", vec.swap_remove(0) == Some(0));
    checks.that(
        "the last one moved",
        vec.first() == full.checked_sub(1).as_ref(),
    );
    vec.push(1)?;
    vec.extend_from_slice(&[2, 3])?;
    checks.that("extended", vec.pop() == Some(3));
    vec.truncate(1);
    checks.that("truncated", vec.len() == 1);
    vec.clear();
    checks.that("cleared", vec.is_empty() && vec.capacity() >= full);
    checks.that("empty swap_remove", vec.swap_remove(0).is_none());

    // More than kmalloc gives.
    let large = Vec::from_fn(2 << 20, |i| Ok::<u64, rt::AllocError>(i as u64))?;
    let wrong = large
        .iter()
        .enumerate()
        .filter(|&(i, &v)| i as u64 != v)
        .count();
    checks.that("large", large.len() == 2 << 20 && wrong == 0);
    Ok(())
}

fn pages(checks: &mut Checks) -> Result {
    for _ in 0..16 {
        let mut page = Page::new()?;
        checks.that("page alignment", page.as_ptr().align_offset(4096) == 0);
        checks.that("zeroed page", page.iter().all(|&b| b == 0));
        // For the next one to find, if it were not zeroed.
        page.fill(0xa5);
        let mut pair = PagePair::new()?;
        checks.that("pair alignment", pair.as_ptr().align_offset(8192) == 0);
        checks.that("zeroed pair", pair.iter().all(|&b| b == 0));
        pair.fill(0x5a);
    }
    Ok(())
}

fn others(checks: &mut Checks) -> Result {
    checks.that("crc", !rt::crc32_le(!0, b"123456789") == 0xcbf4_3926);
    checks.that("crc of zeros", rt::crc32_le(0, &[0; 64]) == 0);
    let boxed = Box::new([7_u8; 4000])?;
    checks.that("box", Box::into_inner(boxed) == [7; 4000]);
    let one = Arc::new(1)?;
    let same = one.clone();
    checks.that("same arc", Arc::ptr_eq(&one, &same));
    checks.that("other arc", !Arc::ptr_eq(&one, &Arc::new(1)?));
    let lock = spin_lock!(1)?;
    *lock.lock() = 2;
    checks.that("lock", *lock.lock() == 2);
    Ok(())
}
