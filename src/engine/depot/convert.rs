// SPDX-License-Identifier: GPL-2.0

//! Giving the slabs of a saved depot their algorithm map, or taking it away.
//!
//! The map lies where the last blocks of a slab's journal were, so the two ways to divide a slab differ in the size of the journal,
//! and a block of the journal is at its sequence number modulo that size. Both find the end of a journal whose newest block is at the
//! same position either way. Therefore
//!
//! 1. an empty block is appended to every journal, with the next sequence number that both put in one place. It is of the type that
//!    both read. Numbers that are passed over do no harm: a clean slab needs nothing of its journal but the end;
//! 2. the summary is made to point at it, behind a flush. The depot is what it was, and would be the other one as well;
//! 3. maps are written, to journal blocks that nothing leads to any more;
//! 4. the super block says which of the two it is: a flush and one sector, written by the volume.
//!
//! The block that the summary pointed at before stays as it is until the summary is stable. Its place could not be used for a copy of
//! it instead: the journal would overwrite the copy before the summary had moved on, as the next blocks go to where they belong.
//!
//! A journal that a rebuild has cleared gets a block as well: that it is blank means that its recovery point is the first.

use super::algorithm_map::Codes;
use super::geometry::SlabGeometry;
use super::handle::{Depot, Inner};
use super::reference_blocks::ReferenceBlocks;
use super::SlabJournalLocks;
use crate::engine::env::{Env, IoClass, WriteFlags};
use crate::engine::error::Error;
use crate::engine::format::{algorithm_map, slab_journal, BlockCode};
use crate::engine::units::{Pbn, SequenceNumber, SlabNumber};
use crate::rt::{Page, Vec};

/// A conversion that is prepared: valid either way on the disk, and with the memory that the rest takes.
pub struct Conversion {
    references: Vec<ReferenceBlocks>,
    adds_map: bool,
}

impl<E: Env, J: SlabJournalLocks> Depot<E, J> {
    /// Whether the depot can be given a map, or can do without the one it has.
    pub fn is_convertible(&self) -> bool {
        let blocks = &self.inner.blocks;
        blocks.geometry().has_map() != blocks.counterpart().has_map()
    }

    /// Begins to keep account of what kind of block each block is, in memory. Nobody may use the depot meanwhile.
    pub fn track_codes(&self) -> Result<(), Error> {
        let blocks = &self.inner.blocks;
        for number in blocks.geometry().slabs() {
            let codes = Codes::new(blocks.geometry().data_blocks)?;
            blocks.slab(number)?.lock().codes = Some(codes);
        }
        blocks.set_tracks_codes(true);
        Ok(())
    }

    /// Ends that, unless there is a map by now.
    pub fn forget_codes(&self) {
        let blocks = &self.inner.blocks;
        if blocks.geometry().has_map() {
            return;
        }
        blocks.set_tracks_codes(false);
        for number in blocks.geometry().slabs() {
            if let Ok(slab) = blocks.slab(number) {
                let codes = slab.lock().codes.take();
                // Freed without the lock.
                drop(codes);
            }
        }
    }

    /// Notes that `pbn`, which stays in use meanwhile, was a compressed block before account was kept.
    pub fn note_compressed(&self, pbn: Pbn, code: BlockCode) -> Result<(), Error> {
        let blocks = &self.inner.blocks;
        let geometry = blocks.geometry();
        let place = geometry.locate(pbn).ok_or(Error::BadMapping)?;
        let mut slab = blocks.slab(place.slab)?.lock();
        let is_news = slab
            .codes
            .as_ref()
            .is_some_and(|codes| codes.get(place.sbn) == BlockCode::NONE);
        if is_news {
            let lock = slab.journal.tail();
            slab.set_code(geometry, place.sbn, code, lock);
        }
        Ok(())
    }

    /// Prepares the conversion of a depot that was just saved, all slabs of which are scrubbed. Nobody may use it meanwhile.
    ///
    /// What was written is stable after the next flush. If it goes no further than this, the depot is what it was.
    pub async fn prepare_conversion(&self) -> Result<Conversion, Error> {
        let inner = &*self.inner;
        inner.store.read_only().check()?;
        let (from, to) = (inner.blocks.geometry(), inner.blocks.counterpart());
        if from.has_map() == to.has_map() || self.unscrubbed_slabs() > 0 {
            return Err(Error::Busy);
        }
        let slabs = usize::try_from(self.slab_count()).map_err(|_| Error::NoMemory)?;
        let references = Vec::from_fn(slabs, |_| ReferenceBlocks::new(to.stored_blocks()))?;
        self.for_each_slab(|inner, slab| async move { inner.append_empty_block(slab).await })
            .await?;
        if to.has_map() {
            // The summary points at the new blocks before the old ones may go.
            inner.store.flush().await?;
            self.for_each_slab(|inner, slab| async move { inner.write_map(slab).await })
                .await?;
        }
        Ok(Conversion {
            references,
            adds_map: to.has_map(),
        })
    }

    /// Goes on in the other way, after the super block says so on the disk.
    pub fn finish_conversion(&self, conversion: Conversion) -> Result<(), Error> {
        let blocks = &self.inner.blocks;
        let mut references = conversion.references;
        blocks.switch_geometry();
        blocks.set_tracks_codes(conversion.adds_map);
        for number in blocks.geometry().slabs() {
            let fresh = references.pop().ok_or(Error::NoMemory)?;
            let old = {
                let mut slab = blocks.slab(number)?.lock();
                let (tail, point) = (slab.journal.tail(), slab.journal.recovery_point());
                slab.journal.restart(blocks.geometry(), tail, point);
                let codes = match conversion.adds_map {
                    true => {
                        slab.recount_codes();
                        None
                    }
                    false => slab.codes.take(),
                };
                (core::mem::replace(&mut slab.references, fresh), codes)
            };
            // Freed without the lock.
            drop(old);
        }
        Ok(())
    }
}

impl<E: Env, J: SlabJournalLocks> Inner<E, J> {
    /// Appends an empty block to the journal of a slab, at a place that is right either way.
    async fn append_empty_block(&self, number: SlabNumber) -> Result<(), Error> {
        let (from, to) = (self.blocks.geometry(), self.blocks.counterpart());
        let (sequence, recovery_point) = {
            let slab = self.blocks.slab(number)?.lock();
            if !slab.used {
                return Ok(());
            }
            if !slab.is_ready() || !slab.is_settled() || slab.summary.is_dirty {
                return Err(Error::Busy);
            }
            let sequence = common_sequence(slab.journal.tail(), from, to).ok_or(Error::Corrupt(
                "the slab journal has no sequence number left",
            ))?;
            (sequence, slab.journal.recovery_point())
        };
        let next = sequence.next().ok_or(Error::Corrupt(
            "the slab journal has no sequence number left",
        ))?;
        let mut page = Page::new()?;
        slab_journal::open(&mut page, from.nonce, sequence, sequence);
        slab_journal::set_recovery_point(&mut page, recovery_point);
        let pbn = from.journal_block(number, from.position(sequence))?;
        let (_, result) = self
            .store
            .write(pbn, page, IoClass::Metadata, WriteFlags::META)
            .await;
        result?;
        let entry = {
            let mut slab = self.blocks.slab(number)?.lock();
            slab.journal.restart(from, next, recovery_point);
            slab.clean_summary(from)
        };
        match entry {
            // W4: the update flushes before it writes.
            Some(entry) => self.summary.update(&self.store, number, entry).await,
            None => Ok(()),
        }
    }

    /// Writes the map of a slab to where it is going to be.
    async fn write_map(&self, number: SlabNumber) -> Result<(), Error> {
        self.find_codes(number).await?;
        let to = self.blocks.counterpart();
        if !self.blocks.slab(number)?.lock().used {
            // What a slab is used for first writes all of it.
            return Ok(());
        }
        let mut page = Page::new()?;
        for block in 0..to.map_blocks {
            {
                let slab = self.blocks.slab(number)?.lock();
                let codes = slab.codes.as_ref().ok_or(Error::NoMemory)?;
                algorithm_map::encode(&mut page, slab.latest, codes.block(block));
            }
            let pbn = to.stored_block(number, to.stored_index(block))?;
            let (written, result) = self
                .store
                .write(pbn, page, IoClass::Metadata, WriteFlags::META)
                .await;
            page = written;
            result?;
        }
        Ok(())
    }
}

/// The first sequence number from `tail` on whose block is at the same position in the journals of both, and so is the next one's;
/// and not at the position of the newest block there is.
fn common_sequence(
    tail: SequenceNumber,
    from: &SlabGeometry,
    to: &SlabGeometry,
) -> Option<SequenceNumber> {
    let (a, b) = (from.journal_blocks, to.journal_blocks);
    let smaller = a.min(b);
    let period = a
        .checked_div(greatest_common_divisor(a, b))?
        .checked_mul(b)?;
    let has_room = |sequence: u64| {
        sequence
            .checked_rem(period)
            .is_some_and(|position| position.saturating_add(1) < smaller)
    };
    if has_room(tail.get()) {
        return Some(tail);
    }
    let newest = tail.get().checked_sub(1)?.checked_rem(a)?;
    let first = tail.get().checked_next_multiple_of(period)?;
    let sequence = first.checked_add(u64::from(newest == 0))?;
    SequenceNumber::new(sequence).filter(|_| has_room(sequence))
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while let Some(rest) = a.checked_rem(b) {
        (a, b) = (b, rest);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::format::component_state::SlabDepotState;
    use crate::engine::format::slab_config::SlabConfig;
    use crate::engine::units::Nonce;

    fn geometries(slab_bits: u32, journal: u64) -> (SlabGeometry, SlabGeometry) {
        let slab_config = SlabConfig::compute(1 << slab_bits, journal).unwrap();
        let plain = SlabDepotState {
            slab_config,
            first_block: Pbn::ZERO,
            last_block: 1 << slab_bits,
            zone_count: 1,
            has_map: false,
        };
        let mapped = plain.with_map().unwrap();
        assert_eq!(mapped.without_map(journal), Some(plain));
        let make = |state| SlabGeometry::new(state, Nonce::new(1)).unwrap();
        (make(&plain), make(&mapped))
    }

    #[test]
    fn the_new_block_is_at_one_place_and_not_on_the_old_one() {
        for (bits, journal) in [(19, 224), (18, 224), (13, 224), (9, 16), (11, 64)] {
            let (plain, mapped) = geometries(bits, journal);
            for (from, to) in [(&plain, &mapped), (&mapped, &plain)] {
                let ends = (1..40_000).chain((1 << 40) - 300..(1 << 40) + 300);
                for tail in ends.map(|tail| SequenceNumber::new(tail).unwrap()) {
                    let sequence = common_sequence(tail, from, to).unwrap();
                    let next = sequence.next().unwrap();
                    assert!(sequence >= tail, "{tail}");
                    for sequence in [sequence, next] {
                        assert_eq!(from.position(sequence), to.position(sequence), "{tail}");
                    }
                    // The summary has no way to say "the last position" that means the same in both.
                    assert!(from.position(next) > 0, "{tail}");
                    let newest = SequenceNumber::new(tail.get() - 1).unwrap();
                    assert_ne!(from.position(sequence), from.position(newest), "{tail}");
                }
            }
        }
    }

    #[test]
    fn the_last_sequence_numbers_are_not_passed_over() {
        let (plain, mapped) = geometries(19, 224);
        let last = SequenceNumber::new(SequenceNumber::LIMIT - 1).unwrap();
        assert_eq!(common_sequence(last, &plain, &mapped), None);
    }
}
