// SPDX-License-Identifier: GPL-2.0

//! Which slab to allocate from. Guarded by a lock of its own, which comes before every slab's.
//!
//! One slab is open; its counters are scanned from a cursor upward, so what is written together lies together. When the cursor
//! reaches the end, the slab with the highest level is opened. A level is the magnitude of a slab's free space, with one level in
//! between kept for slabs that were never used: a used slab is preferred to a new one only if it is nearly empty.

use crate::engine::units::SlabNumber;
use crate::rt::{AllocError, Vec};

/// Levels: 0 for full, up to 24 magnitudes, and that of unused slabs.
const LEVELS: usize = 32;
/// No slab.
const NIL: u32 = u32::MAX;

/// The level of a slab that cannot be improved: the open one, and those not in use yet.
pub(super) const UNLISTED: u8 = u8::MAX;

/// The level of a slab.
pub(super) fn level(free: u32, used: bool, data_blocks: u32) -> u8 {
    let Some(magnitude) = free.checked_ilog2() else {
        return 0;
    };
    let most = u64::from(data_blocks).saturating_mul(3) / 4;
    let unused = most.checked_ilog2().unwrap_or(0).saturating_add(1);
    let level = if !used {
        unused
    } else {
        match magnitude.saturating_add(1) {
            level if level >= unused => level.saturating_add(1),
            level => level,
        }
    };
    u8::try_from(level).unwrap_or(0)
}

#[derive(Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
    /// The list that the slab is on.
    level: Option<u8>,
}

#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

/// The slabs in the order they are to be used.
///
/// # Invariants
///
/// A slab is on the list of its link's level, or on none. Bit `n` of `occupied` says whether list `n` has any.
pub(super) struct Allocator {
    links: Vec<Link>,
    lists: [List; LEVELS],
    occupied: u32,
    /// The open slab, and where its scan goes on.
    open: Option<(SlabNumber, u32)>,
}

impl Allocator {
    /// An allocator that knows no slab yet.
    pub(super) fn new(slab_count: u32) -> Result<Self, AllocError> {
        let link = Link {
            previous: NIL,
            next: NIL,
            level: None,
        };
        let list = List {
            first: NIL,
            last: NIL,
        };
        Ok(Self {
            links: Vec::from_elem(link, usize::try_from(slab_count).map_err(|_| AllocError)?)?,
            lists: [list; LEVELS],
            occupied: 0,
            open: None,
        })
    }

    /// The open slab and where its scan goes on.
    pub(super) fn open(&self) -> Option<(SlabNumber, u32)> {
        self.open
    }

    /// Whether `slab` is the open one.
    pub(super) fn is_open(&self, slab: SlabNumber) -> bool {
        self.open.is_some_and(|(open, _)| open == slab)
    }

    /// Moves the cursor of the open slab.
    pub(super) fn set_cursor(&mut self, to: u32) {
        if let Some((_, cursor)) = &mut self.open {
            *cursor = to;
        }
    }

    /// Closes the open slab. It is on no list then.
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// Opens the best slab that has room.
    pub(super) fn open_best(&mut self) -> Option<SlabNumber> {
        // Level 0 has the full ones.
        let best = (self.occupied & !1).checked_ilog2()?;
        let first = self.lists.get(usize::try_from(best).ok()?)?.first;
        let slab = SlabNumber::new(first);
        self.unlink(slab);
        self.open = Some((slab, 0));
        Some(slab)
    }

    /// Puts a slab at the end of the list of `level`, unless it is there already.
    pub(super) fn list(&mut self, slab: SlabNumber, level: u8) {
        let Some(link) = self.link(slab.get()) else {
            return;
        };
        if link.level == Some(level) {
            return;
        }
        self.unlink(slab);
        let Some(list) = self.lists.get_mut(usize::from(level)) else {
            return;
        };
        let last = list.last;
        list.last = slab.get();
        if last == NIL {
            list.first = slab.get();
        }
        // INVARIANT: the list has this one.
        self.occupied |= 1_u32.checked_shl(u32::from(level)).unwrap_or(0);
        if let Some(previous) = self.link_mut(last) {
            previous.next = slab.get();
        }
        if let Some(link) = self.link_mut(slab.get()) {
            *link = Link {
                previous: last,
                next: NIL,
                level: Some(level),
            };
        }
    }

    fn unlink(&mut self, slab: SlabNumber) {
        let Some(link) = self.link(slab.get()) else {
            return;
        };
        let Some(level) = link.level else {
            return;
        };
        if let Some(previous) = self.link_mut(link.previous) {
            previous.next = link.next;
        }
        if let Some(next) = self.link_mut(link.next) {
            next.previous = link.previous;
        }
        if let Some(list) = self.lists.get_mut(usize::from(level)) {
            if list.first == slab.get() {
                list.first = link.next;
            }
            if list.last == slab.get() {
                list.last = link.previous;
            }
            if list.first == NIL {
                // INVARIANT: nothing is left on the list.
                self.occupied &= !1_u32.checked_shl(u32::from(level)).unwrap_or(0);
            }
        }
        if let Some(link) = self.link_mut(slab.get()) {
            link.level = None;
        }
    }

    fn link(&self, slab: u32) -> Option<Link> {
        self.links.get(usize::try_from(slab).ok()?).copied()
    }

    fn link_mut(&mut self, slab: u32) -> Option<&mut Link> {
        self.links.get_mut(usize::try_from(slab).ok()?)
    }
}
