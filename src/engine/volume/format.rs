// SPDX-License-Identifier: GPL-2.0

//! Making an empty device a volume.
//!
//! The geometry block goes last, and nothing else makes a device a volume: when the power fails meanwhile, block 0 is still empty
//! and the next start formats the device anew. What is written, and in which order, is format.md §4.1; the first load, which finds
//! the volume in the state "new", does the rest.
//!
//! An empty block 0 may also be all that is left of the geometry block of a volume. So a device that has a super block where any
//! index that it has room for would end is not formatted, unless that volume was never started: then it holds nothing, and it may be
//! what such a power failure has left.

use super::Volume;
use crate::engine::env::{Device, Env, IoClass, WriteFlags};
use crate::engine::error::Error;
use crate::engine::format::formatter::{format_volume, FormatParams};
use crate::engine::format::geometry::{is_unformatted, Geometry};
use crate::engine::format::index_config::IndexConfig;
use crate::engine::format::layout::{Partition, PartitionId};
use crate::engine::format::super_block::SuperBlock;
use crate::engine::format::volume_state::VolumeState;
use crate::engine::format::FormatError;
use crate::engine::recovery::parallel::for_each;
use crate::engine::statistics::Statistics;
use crate::engine::store::Store;
use crate::engine::units::Pbn;
use crate::rt::{Arc, Page};

/// Blocks that are cleared at a time.
const CLEARERS: usize = 64;

impl<E: Env> Volume<E> {
    /// Makes the device of `env` what `params` says if its first block is empty; tells whether it did.
    ///
    /// # Errors
    ///
    /// A device that is too small or too large for what `params` says, or that looks as if it had lost its geometry block.
    pub async fn format_if_empty(
        env: Arc<E>,
        params: impl FnOnce() -> Result<FormatParams, FormatError> + Send,
    ) -> Result<bool, Error> {
        let (page, result) = env
            .device()
            .read(Geometry::DEVICE_BLOCK, Page::new()?, IoClass::Metadata)
            .await;
        result?;
        if !is_unformatted(&page) {
            return Ok(false);
        }
        let params = params().map_err(cannot_be)?;
        if params.config.physical_blocks > env.device().blocks() {
            return Err(Error::Mismatch(
                "the device is smaller than the table line says",
            ));
        }
        let (geometry, super_block) = format_volume(&params).map_err(cannot_be)?;
        let statistics = Arc::new(Statistics::default())?;
        let store = Arc::new(Store::new(env, geometry.bio_offset, statistics)?)?;
        let mut page = refuse_damaged(&store, page).await?;

        page.fill(0);
        let page = write(&store, geometry.index_region.start, page, WriteFlags::META).await?;
        for part in [PartitionId::BlockMap, PartitionId::RecoveryJournal] {
            clear(&store, super_block.layout.partition(part)?).await?;
        }
        let mut page = page;
        super_block.encode(&mut page)?;
        let place = geometry.data_region.start;
        let mut page = write(&store, place, page, WriteFlags::PREFLUSH_FUA).await?;
        geometry.encode(&mut page)?;
        write(&store, Pbn::ZERO, page, WriteFlags::PREFLUSH_FUA).await?;
        Ok(true)
    }
}

/// What is wrong is wrong in the table line: nothing was read yet.
fn cannot_be(error: FormatError) -> Error {
    match error {
        FormatError::OutOfRange(_) => Error::Mismatch(
            "no volume can be as large, or have such an index, as the table line says",
        ),
        error => Error::Format(error),
    }
}

/// Looks for a super block in all places where there could be one.
async fn refuse_damaged<E: Env>(store: &Store<E>, mut page: Page) -> Result<Page, Error> {
    let device_blocks = store.env().device().blocks();
    for place in IndexConfig::all().filter_map(super_block_place) {
        if place.get() >= device_blocks {
            continue;
        }
        let (read, result) = store.read(place, page, IoClass::Metadata).await;
        page = read;
        result?;
        if SuperBlock::decode(&page).is_ok_and(|found| found.state != VolumeState::New) {
            crate::rt::error!("block 0 is empty, but block {} is a super block", place);
            return Err(Error::Unsupported(
                "block 0 of the device is empty, but there is a super block: it is not formatted. \
                 The volume lost its geometry block; to give it up, overwrite the super block",
            ));
        }
    }
    Ok(page)
}

/// Where the super block of a volume with such an index is.
fn super_block_place(index: IndexConfig) -> Option<Pbn> {
    Pbn::new(index.region_blocks().checked_add(1)?)
}

/// Writes zeros to all of `partition`.
async fn clear<E: Env>(store: &Arc<Store<E>>, partition: Partition) -> Result<(), Error> {
    let blocks = usize::try_from(partition.blocks).map_err(|_| Error::OutOfRange)?;
    let shared = Arc::clone(store);
    for_each(store, blocks, CLEARERS, move |index| {
        let store = Arc::clone(&shared);
        async move {
            let block = u64::try_from(index)
                .ok()
                .and_then(|index| partition.block(index));
            let block = block.ok_or(Error::OutOfRange)?;
            write(&store, block, Page::new()?, WriteFlags::META).await?;
            Ok(())
        }
    })
    .await
}

async fn write<E: Env>(
    store: &Store<E>,
    block: Pbn,
    page: Page,
    flags: WriteFlags,
) -> Result<Page, Error> {
    let (page, result) = store.write(block, page, IoClass::Metadata, flags).await;
    result?;
    Ok(page)
}
