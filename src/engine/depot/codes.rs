// SPDX-License-Identifier: GPL-2.0

//! Finding out what kind of block a block is by looking at it.

use super::geometry::Place;
use super::handle::Inner;
use super::SlabJournalLocks;
use crate::engine::env::{Env, IoClass};
use crate::engine::error::Error;
use crate::engine::format::BlockCode;
use crate::engine::units::{SlabBlockNumber, SlabNumber};
use crate::rt::Page;

impl<E: Env, J: SlabJournalLocks> Inner<E, J> {
    /// Reads every block in use of a slab whose code says that it has to be read, and takes over what it says. Nothing may be written
    /// to the slab meanwhile. One that cannot be read, or is no compressed block, stays unknown.
    pub(super) async fn find_codes(&self, number: SlabNumber) -> Result<(), Error> {
        let geometry = self.blocks.geometry();
        let mut page = None;
        let mut next = 0;
        loop {
            let found = self.blocks.slab(number)?.lock().next_unknown(next);
            let Some(sbn) = found else {
                break;
            };
            next = sbn.get().saturating_add(1);
            let place = Place { slab: number, sbn };
            let pbn = geometry.pbn(place).ok_or(Error::OutOfRange)?;
            let buffer = match page.take() {
                Some(page) => page,
                None => Page::new()?,
            };
            let (read, result) = self.store.read(pbn, buffer, IoClass::Data).await;
            if result.is_ok() {
                let code = BlockCode::of_block(&read);
                let mut slab = self.blocks.slab(number)?.lock();
                let lock = slab.journal.tail();
                slab.set_code(geometry, sbn, code, lock);
            }
            page = Some(read);
        }
        Ok(())
    }
}

impl super::slab::Slab {
    /// The first block in use at or after `from` whose code says that it has to be read.
    fn next_unknown(&self, from: u32) -> Option<SlabBlockNumber> {
        let codes = self.codes.as_ref()?;
        (from..)
            .map_while(SlabBlockNumber::new)
            .map_while(|sbn| Some((sbn, self.counters.get(sbn)?)))
            .find(|(sbn, counter)| *counter != 0 && codes.get(*sbn) == BlockCode::UNKNOWN)
            .map(|(sbn, _)| sbn)
    }
}
