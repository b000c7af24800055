// SPDX-License-Identifier: GPL-2.0

//! What happens to a request.
//!
//! Each of these functions is one request from beginning to end. The orders that crash safety rests on are kept by the parts they
//! call: W1 and W2 by [`Journal::record`], W3 and W9 by the applier, W10 by pins.
//!
//! Whatever waits is pinned before it is awaited: as a temporary, each level's future would be on the kernel's small stack twice.
//!
//! [`Journal::record`]: crate::engine::journal::Journal::record

use core::pin::pin;

use super::request::{Buffers, Extent, Pending};
use super::store_block::Ticket;
use super::Volume;
use crate::engine::env::{Env, Intake, Operation, UserRequest};
use crate::engine::error::Error;
use crate::engine::format::Mapping;
use crate::engine::reader;
use crate::engine::units::{Lbn, BLOCK_SIZE, SECTOR_SIZE};
use crate::rt::{self, Arc};

impl<E: Env> Volume<E> {
    /// Takes requests until the intake is closed. The body of a request task.
    pub(super) async fn serve_requests(this: Arc<Self>, mut buffers: Buffers) {
        let mut served = 0_u32;
        while let Some(request) = this.store.env().intake().next().await {
            let _active = this.activity.begin().await;
            this.statistics.requests.begin();
            buffers = pin!(this.serve(request, buffers)).await;
            this.statistics.requests.end();
            served = served.wrapping_add(1);
            give_way(served).await;
        }
    }

    async fn serve(&self, request: E::Request, buffers: Buffers) -> Buffers {
        let operation = request.operation();
        let extent = Extent::new(request.sector(), request.bytes(), self.logical_blocks());
        let partial =
            operation != Operation::Flush && extent.is_ok_and(|extent| !extent.is_whole_block());
        self.store
            .statistics()
            .bio_in(operation, false, request.fua(), partial);
        let pending = Pending::new(&self.store, request);
        if operation == Operation::Flush {
            pending.finish(pin!(self.flush()).await);
            return buffers;
        }
        match (operation, extent) {
            (_, Err(error)) => {
                pending.finish(Err(error));
                buffers
            }
            (Operation::Read, Ok(extent)) => pin!(self.read(pending, extent, buffers)).await,
            (Operation::Discard, Ok(_)) => pin!(self.discard(pending, buffers)).await,
            (_, Ok(extent)) => pin!(self.write(pending, extent, buffers)).await,
        }
    }

    /// Reads up to one block.
    async fn read(&self, mut pending: Pending<'_, E>, extent: Extent, buffers: Buffers) -> Buffers {
        let lock = self.lock(extent.lbn).await;
        let (buffers, result) = pin!(self.fetch(extent.lbn, buffers)).await;
        // The mapping can no longer be the last reference to what was read: the data is ours now.
        drop(lock);
        if let (Ok(()), Some(request)) = (result, pending.request_mut()) {
            request.copy_to_user(extent.of(&buffers.data[..]));
        }
        pending.finish(result);
        buffers
    }

    /// Writes up to one block, acknowledging it as early as honesty allows.
    async fn write(
        &self,
        mut pending: Pending<'_, E>,
        extent: Extent,
        mut buffers: Buffers,
    ) -> Buffers {
        if let Err(error) = self.store.read_only().check() {
            pending.finish(Err(error));
            return buffers;
        }
        let membership = self.flusher.join();
        let lock = self.lock(extent.lbn).await;
        let mut fetched = Ok(());
        if !extent.is_whole_block() {
            (buffers, fetched) = pin!(self.fetch(extent.lbn, buffers)).await;
        }
        if let Err(error) = fetched {
            pending.finish(Err(error));
            return buffers;
        }
        if let Some(request) = pending.request() {
            request.copy_from_user(extent.of_mut(&mut buffers.data[..]));
        }
        let ticket = Ticket {
            lock: &lock,
            membership: &membership,
        };
        let (buffers, result) = pin!(self.store_block(ticket, &mut pending, buffers)).await;
        pending.finish(result);
        buffers
    }

    /// Unmaps whole blocks and zeroes the parts of blocks at either end. Acknowledged at the end.
    async fn discard(&self, mut pending: Pending<'_, E>, mut buffers: Buffers) -> Buffers {
        let Some((mut sector, mut left)) = pending
            .request()
            .map(|request| (request.sector(), request.bytes()))
        else {
            return buffers;
        };
        pending.defer();
        let mut result = self.store.read_only().check();
        let mut steps = 0_u32;
        while result.is_ok() && left > 0 {
            steps = steps.wrapping_add(1);
            give_way(steps).await;
            match Extent::new(sector, left, self.logical_blocks()) {
                Ok(extent) => {
                    (buffers, result) =
                        pin!(self.discard_extent(&mut pending, extent, buffers)).await;
                    left = left.saturating_sub(extent.bytes);
                    let sectors = extent.bytes.checked_div(SECTOR_SIZE).unwrap_or(0);
                    sector = sector.saturating_add(u64::try_from(sectors).unwrap_or(0));
                }
                Err(error) => result = Err(error),
            }
        }
        pending.finish(result);
        buffers
    }

    async fn discard_extent(
        &self,
        pending: &mut Pending<'_, E>,
        extent: Extent,
        buffers: Buffers,
    ) -> (Buffers, Result<(), Error>) {
        let membership = self.flusher.join();
        let lock = self.lock(extent.lbn).await;
        let location = match self.block_map.find(extent.lbn).await {
            Ok(Some(location)) => location,
            // No page of the block map, nothing to unmap.
            Ok(None) => return (buffers, Ok(())),
            Err(error) => return (buffers, Err(error)),
        };
        if extent.is_whole_block() {
            let result = pin!(self.remap(location, Mapping::UNMAPPED)).await;
            return (buffers, result);
        }
        // A part of a block that reads as zeros already stays as it is.
        if self
            .block_map
            .get(location)
            .await
            .is_ok_and(|mapping| !mapping.has_block())
        {
            return (buffers, Ok(()));
        }
        let (mut buffers, result) = pin!(self.fetch(extent.lbn, buffers)).await;
        if let Err(error) = result {
            return (buffers, Err(error));
        }
        extent.of_mut(&mut buffers.data[..]).fill(0);
        let ticket = Ticket {
            lock: &lock,
            membership: &membership,
        };
        let (buffers, result) = pin!(self.store_block(ticket, pending, buffers)).await;
        (buffers, result)
    }

    /// Makes every write acknowledged so far durable.
    async fn flush(&self) -> Result<(), Error> {
        self.store.statistics().flush_out.increment();
        self.settle().await;
        // A write that failed after its acknowledgement has made the volume read-only: here its user learns of it.
        self.store.read_only().check()?;
        self.store.flush().await?;
        Ok(())
    }

    /// Waits until every write that has been acknowledged is recorded in the journal and mapped.
    pub(super) async fn settle(&self) {
        let generation = self.flusher.close_generation().await;
        // No member gets there later.
        self.flusher.wait_for_packed(generation).await;
        self.packer.flush();
        self.flusher.wait_for(generation).await;
    }

    /// Reads the block that `lbn` maps to into `buffers.data`.
    pub(super) async fn fetch(&self, lbn: Lbn, buffers: Buffers) -> (Buffers, Result<(), Error>) {
        let mapping = match self.block_map.find(lbn).await {
            Ok(None) => Ok(Mapping::UNMAPPED),
            Ok(Some(location)) => self.block_map.get(location).await,
            Err(error) => Err(error),
        };
        match mapping {
            Ok(mapping) if !mapping.has_block() => {
                let mut buffers = buffers;
                buffers.data.copy_from_slice(&[0; BLOCK_SIZE]);
                (buffers, Ok(()))
            }
            Ok(mapping) if !self.depot.is_data_block(mapping.pbn) => {
                (buffers, Err(Error::BadMapping))
            }
            Ok(mapping) => pin!(self.fetch_mapping(mapping, buffers)).await,
            Err(error) => (buffers, Err(error)),
        }
    }

    async fn fetch_mapping(
        &self,
        mapping: Mapping,
        buffers: Buffers,
    ) -> (Buffers, Result<(), Error>) {
        let Buffers {
            data,
            scratch,
            compressed,
        } = buffers;
        let (data, scratch, result) =
            reader::read_mapping(&self.store, mapping, scratch, data).await;
        (
            Buffers {
                data,
                scratch,
                compressed,
            },
            result,
        )
    }
}

/// Lets other tasks run every sixteenth time: what needs no I/O would never stop by itself as long as there is more of it.
async fn give_way(steps: u32) {
    if steps & 15 == 0 {
        rt::yield_now().await;
    }
}
