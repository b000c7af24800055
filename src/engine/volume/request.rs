// SPDX-License-Identifier: GPL-2.0

//! A request of the user on its way through the volume: its place, its memory, its one acknowledgement.

use crate::engine::env::{Env, Operation, RequestError, UserRequest};
use crate::engine::error::Error;
use crate::engine::store::Store;
use crate::engine::units::{Lbn, BLOCK_SIZE, SECTORS_PER_BLOCK, SECTOR_SIZE};
use crate::rt::{AllocError, Page, PagePair};

/// The memory of one request task. Handed by value to whatever works on it.
pub(super) struct Buffers {
    /// The block of the request.
    pub(super) data: Page,
    /// Room for a compressed block from disk.
    pub(super) scratch: Page,
    /// Room for the result of a compressor.
    pub(super) compressed: PagePair,
}

impl Buffers {
    /// Allocates the memory of a request task.
    pub(super) fn new() -> Result<Self, AllocError> {
        Ok(Self {
            data: Page::new()?,
            scratch: Page::new()?,
            compressed: PagePair::new()?,
        })
    }
}

/// The part of a block that a request covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) lbn: Lbn,
    /// First byte in the block.
    pub(super) offset: usize,
    /// Never more than the rest of the block.
    pub(super) bytes: usize,
}

impl Extent {
    /// The first `bytes` bytes from `sector` on, or as many of them as lie in the same block.
    pub(super) fn new(sector: u64, bytes: usize, logical_blocks: u64) -> Result<Self, Error> {
        let sectors_per_block = u64::try_from(SECTORS_PER_BLOCK).map_err(|_| Error::OutOfRange)?;
        let lbn = sector
            .checked_div(sectors_per_block)
            .ok_or(Error::OutOfRange)?;
        let in_block = sector
            .checked_rem(sectors_per_block)
            .ok_or(Error::OutOfRange)?;
        if lbn >= logical_blocks || bytes == 0 {
            return Err(Error::OutOfRange);
        }
        let offset = usize::try_from(in_block)
            .ok()
            .and_then(|sectors| sectors.checked_mul(SECTOR_SIZE))
            .ok_or(Error::OutOfRange)?;
        Ok(Self {
            lbn: Lbn::new(lbn),
            offset,
            bytes: bytes.min(BLOCK_SIZE.saturating_sub(offset)),
        })
    }

    pub(super) fn is_whole_block(&self) -> bool {
        self.offset == 0 && self.bytes == BLOCK_SIZE
    }

    /// The bytes of the extent in a block.
    pub(super) fn of<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        block
            .get(self.offset..self.offset.saturating_add(self.bytes))
            .unwrap_or(&[])
    }

    /// The bytes of the extent in a block, to be changed.
    pub(super) fn of_mut<'a>(&self, block: &'a mut [u8]) -> &'a mut [u8] {
        block
            .get_mut(self.offset..self.offset.saturating_add(self.bytes))
            .unwrap_or(&mut [])
    }
}

/// A request that has to be answered exactly once.
///
/// A write may be acknowledged before it is done. What fails after that can no longer be told to its user, so it makes the
/// volume read-only instead.
pub(super) struct Pending<'a, E: Env> {
    store: &'a Store<E>,
    request: Option<E::Request>,
    /// The answer has to wait for the end: FUA, or a discard with more blocks to come.
    deferred: bool,
}

impl<'a, E: Env> Pending<'a, E> {
    pub(super) fn new(store: &'a Store<E>, request: E::Request) -> Self {
        let deferred = request.fua();
        Self {
            store,
            request: Some(request),
            deferred,
        }
    }

    /// Keeps the answer until [`Self::finish`], whatever the request is.
    pub(super) fn defer(&mut self) {
        self.deferred = true;
    }

    /// Whether the answer has to wait until everything is durable.
    pub(super) fn is_deferred(&self) -> bool {
        self.deferred
    }

    pub(super) fn request(&self) -> Option<&E::Request> {
        self.request.as_ref()
    }

    pub(super) fn request_mut(&mut self) -> Option<&mut E::Request> {
        self.request.as_mut()
    }

    /// Tells the user that the request is done, unless that has to wait.
    pub(super) fn acknowledge(&mut self) {
        if !self.deferred {
            self.answer(Ok(()));
        }
    }

    /// The request is over.
    pub(super) fn finish(mut self, result: Result<(), Error>) {
        match result {
            Err(Error::ReadOnly) => self
                .store
                .statistics()
                .errors
                .read_only_error_count
                .increment(),
            Err(Error::NoSpace) => self
                .store
                .statistics()
                .errors
                .no_space_error_count
                .increment(),
            _ => {}
        }
        if self.request.is_some() {
            self.answer(result);
        } else if let Err(error) = result {
            self.store
                .read_only()
                .enter(error, "finishing a request that had been acknowledged");
        }
    }

    fn answer(&mut self, result: Result<(), Error>) {
        let Some(request) = self.request.take() else {
            return;
        };
        let partial = request.operation() != Operation::Flush
            && Extent::new(request.sector(), request.bytes(), u64::MAX)
                .is_ok_and(|extent| !extent.is_whole_block());
        self.store.statistics().bio_acknowledged(
            request.operation(),
            false,
            request.fua(),
            partial,
        );
        request.complete(result.map_err(request_error));
    }
}

/// What the user is told of an error.
fn request_error(error: Error) -> RequestError {
    match error {
        Error::NoSpace => RequestError::NoSpace,
        Error::ReadOnly => RequestError::ReadOnly,
        Error::OutOfRange => RequestError::OutOfRange,
        _ => RequestError::Io,
    }
}
