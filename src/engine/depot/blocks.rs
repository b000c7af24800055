// SPDX-License-Identifier: GPL-2.0

//! The blocks in memory: allocating, holding and giving them back. Short, never waits, does no I/O.
//!
//! What a caller holds is an [`Allocation`] or a [`Pin`]. Both are guards: dropping the last one of a block whose references
//! have not been counted meanwhile gives the block back.

use super::allocator::{Allocator, UNLISTED};
use super::geometry::{Place, SlabGeometry};
use super::pins::Pins;
use super::slab::{Fate, Slab};
use super::DepotParameters;
use crate::engine::error::Error;
use crate::engine::format::BlockCode;
use crate::engine::statistics::AllocatorCounters;
use crate::engine::units::{Pbn, SlabNumber};
use crate::rt::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::rt::{spin_lock, Arc, SpinLock, Vec};

/// The slabs, and who holds what of them.
///
/// Lock order: `allocator`, a slab, `pins`.
pub(super) struct Blocks {
    /// How slabs are divided now, and how else they can be.
    geometries: [SlabGeometry; 2],
    current: AtomicUsize,
    /// Whether the slabs have codes in memory.
    tracks_codes: AtomicBool,
    pub(super) pins: Pins,
    slabs: Vec<SpinLock<Slab>>,
    allocator: SpinLock<Allocator>,
    /// Blocks that are not free. Follows the slabs' counters at once, but is no part of any invariant.
    allocated: AtomicU64,
}

impl Blocks {
    /// The blocks of a new depot: all free, none of them offered for allocation yet.
    pub(super) fn new(parameters: &DepotParameters) -> Result<Self, Error> {
        let geometry = SlabGeometry::new(&parameters.state, parameters.nonce)?;
        let counterpart = match &parameters.counterpart {
            Some(state) => SlabGeometry::new(state, parameters.nonce)?,
            None => geometry,
        };
        // A request has a block of its own at most, and one that it would like to share.
        let most_held = parameters.requests.saturating_mul(2);
        let slab_count = usize::try_from(geometry.slab_count()).map_err(|_| Error::NoMemory)?;
        Ok(Self {
            geometries: [geometry, counterpart],
            current: AtomicUsize::new(0),
            tracks_codes: AtomicBool::new(geometry.has_map()),
            pins: Pins::new(most_held)?,
            slabs: Vec::from_fn(slab_count, |_| spin_lock!(Slab::new(&geometry)?))?,
            allocator: spin_lock!(Allocator::new(geometry.slab_count())?)?,
            allocated: AtomicU64::new(0),
        })
    }

    /// How slabs are divided.
    pub(super) fn geometry(&self) -> &SlabGeometry {
        let [first, second] = &self.geometries;
        match self.current.load(Ordering::Acquire) {
            0 => first,
            _ => second,
        }
    }

    /// How else slabs can be divided. The same as now if there is no other way.
    pub(super) fn counterpart(&self) -> &SlabGeometry {
        let [first, second] = &self.geometries;
        match self.current.load(Ordering::Acquire) {
            0 => second,
            _ => first,
        }
    }

    /// Divides slabs in the other way from now on. Nobody may use the depot meanwhile.
    pub(super) fn switch_geometry(&self) {
        self.current.fetch_xor(1, Ordering::AcqRel);
    }

    /// The slabs have codes in memory from now on, or no longer.
    pub(super) fn set_tracks_codes(&self, tracks: bool) {
        self.tracks_codes.store(tracks, Ordering::Release);
    }

    /// Notes what kind of block a block is if nothing refers to it yet; the caller holds it. `false`: it is of another kind.
    pub(super) fn note_code(&self, place: Place, code: BlockCode) -> bool {
        if !self.tracks_codes.load(Ordering::Acquire) {
            return true;
        }
        self.slab(place.slab)
            .is_ok_and(|slab| slab.lock().note_code(self.geometry(), place.sbn, code))
    }

    /// A slab's state.
    pub(super) fn slab(&self, slab: SlabNumber) -> Result<&SpinLock<Slab>, Error> {
        usize::try_from(slab.get())
            .ok()
            .and_then(|slab| self.slabs.get(slab))
            .ok_or(Error::OutOfRange)
    }

    /// Blocks that are not free.
    pub(super) fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    /// Offers the blocks of all slabs for allocation, once all of them are loaded.
    pub(super) fn open(&self) -> Result<(), Error> {
        let mut allocated: u64 = 0;
        for slab in self.geometry().slabs() {
            let free = self.list(slab)?;
            let used = self.geometry().data_blocks.saturating_sub(free);
            allocated = allocated.saturating_add(u64::from(used));
        }
        self.allocated.store(allocated, Ordering::Relaxed);
        Ok(())
    }

    /// Takes a free block and makes it provisional.
    pub(super) fn allocate(
        this: &Arc<Self>,
        statistics: &AllocatorCounters,
    ) -> Result<Allocation, Error> {
        let mut allocator = this.allocator.lock();
        loop {
            let (number, cursor) = match allocator.open() {
                Some(open) => open,
                None => {
                    let number = allocator.open_best().ok_or(Error::NoSpace)?;
                    let mut slab = this.slab(number)?.lock();
                    slab.listed = UNLISTED;
                    statistics.slabs_opened.increment();
                    if slab.used {
                        statistics.slabs_reopened.increment();
                    }
                    (number, 0)
                }
            };
            let mut slab = this.slab(number)?.lock();
            let Some(sbn) = slab.allocate(cursor) else {
                // The end of the slab. What was freed behind the cursor is found when it is opened again.
                allocator.close();
                slab.listed = slab.level(this.geometry());
                allocator.list(number, slab.listed);
                continue;
            };
            let place = Place { slab: number, sbn };
            let held = this
                .geometry()
                .pbn(place)
                .filter(|pbn| this.pins.hold_for_write(*pbn).is_ok());
            let Some(pbn) = held else {
                // More blocks are held than the table was made for.
                slab.counters.set(sbn, super::counters::FREE);
                return Err(Error::Busy);
            };
            allocator.set_cursor(sbn.get().saturating_add(1));
            this.allocated.fetch_add(1, Ordering::Relaxed);
            let blocks = this.clone();
            return Ok(Allocation {
                hold: Hold { blocks, pbn, place },
            });
        }
    }

    /// Holds a block that is to get more references.
    pub(super) fn pin(this: &Arc<Self>, pbn: Pbn) -> Option<Pin> {
        let place = this.geometry().locate(pbn)?;
        {
            let mut slab = this.slab(place.slab).ok()?.lock();
            let free = slab.counters.free();
            if !slab.pin(&this.pins, place.sbn, pbn) {
                return None;
            }
            if slab.counters.free() != free {
                this.allocated.fetch_add(1, Ordering::Relaxed);
            }
        }
        let blocks = this.clone();
        Some(Pin {
            hold: Hold { blocks, pbn, place },
        })
    }

    /// Offers the blocks of a slab that has just been scrubbed.
    pub(super) fn offer(&self, slab: SlabNumber) -> Result<(), Error> {
        let free = self.list(slab)?;
        self.allocated.fetch_sub(u64::from(free), Ordering::Relaxed);
        Ok(())
    }

    /// A block of `slab` has become free. `risen`: the slab may deserve another place on the allocator's lists.
    pub(super) fn freed(&self, slab: SlabNumber, risen: bool) {
        self.allocated.fetch_sub(1, Ordering::Relaxed);
        if risen {
            // The slab is there: one of its blocks was just freed.
            let _ = self.list(slab);
        }
    }

    /// Puts a slab where it belongs on the allocator's lists. Returns its free blocks.
    fn list(&self, number: SlabNumber) -> Result<u32, Error> {
        let mut allocator = self.allocator.lock();
        let mut slab = self.slab(number)?.lock();
        if !slab.is_ready() {
            // Nothing of it can be had.
            return Ok(0);
        }
        if !allocator.is_open(number) {
            slab.listed = slab.level(self.geometry());
            allocator.list(number, slab.listed);
        }
        Ok(slab.counters.free())
    }

    fn release(&self, place: Place, pbn: Pbn) {
        if self.pins.release_shared(pbn) {
            return;
        }
        let Ok(slab) = self.slab(place.slab) else {
            return;
        };
        let risen = {
            let mut slab = slab.lock();
            match slab.release(&self.pins, place.sbn, pbn) {
                Fate::Kept => return,
                Fate::Freed => slab.has_risen(self.geometry()),
            }
        };
        self.freed(place.slab, risen);
    }
}

/// One holder of a block.
struct Hold {
    blocks: Arc<Blocks>,
    pbn: Pbn,
    place: Place,
}

impl Hold {
    fn note_code(&self, code: BlockCode) -> bool {
        self.blocks.note_code(self.place, code)
    }
}

impl Clone for Hold {
    fn clone(&self) -> Self {
        self.blocks.pins.add_holder(self.pbn);
        Self {
            blocks: self.blocks.clone(),
            pbn: self.pbn,
            place: self.place,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.blocks.release(self.place, self.pbn);
    }
}

/// A block that was free and now belongs to one write. Dropping it gives the block back, unless a reference to it has been
/// counted.
pub struct Allocation {
    hold: Hold,
}

impl Allocation {
    /// The block.
    pub fn pbn(&self) -> Pbn {
        self.hold.pbn
    }

    /// Says what kind of block the data that is in place makes it. Before anybody else may share it.
    pub fn note_code(&self, code: BlockCode) {
        // Nothing refers to it, so this is news.
        let _ = self.hold.note_code(code);
    }

    /// The data is in place: others may share the block now. The writer has to claim its own reference like everyone else.
    pub fn into_pin(self) -> Pin {
        self.hold.blocks.pins.share_written(self.hold.pbn);
        Pin { hold: self.hold }
    }

    /// Ends the allocation of a block map page, whose reference has been counted.
    pub fn consume(self) {}
}

/// A block that is kept from becoming free, so that references to it can be added. Each clone is another holder.
///
/// A holder that claimed a reference keeps the pin until the reference is counted.
#[derive(Clone)]
pub struct Pin {
    hold: Hold,
}

impl Pin {
    /// The block.
    pub fn pbn(&self) -> Pbn {
        self.hold.pbn
    }

    /// Says what kind of block it was found to be. Of use if nothing refers to it any more; otherwise that is known, and `false` if it
    /// is another.
    pub fn note_code(&self, code: BlockCode) -> bool {
        self.hold.note_code(code)
    }

    /// Claims the right to add one reference. `false` once the block can have no more.
    pub fn claim(&self) -> bool {
        self.hold.blocks.pins.claim(self.hold.pbn)
    }
}
