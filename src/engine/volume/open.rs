// SPDX-License-Identifier: GPL-2.0

//! Opening a volume: reading what it says about itself, checking that against the table line, making the parts.
//!
//! Nothing is written and no task is started: a table that is loaded but never resumed leaves no trace.

use super::activity::Activity;
use super::flusher::Flusher;
use super::life::Lifecycle;
use super::super_block::SuperBlockKeeper;
use super::verify::Verifier;
use super::Volume;
use crate::engine::admitted::Admitted;
use crate::engine::block_map::{self, BlockMap};
use crate::engine::dedupe::{Dedupe, VolatileIndex};
use crate::engine::depot::{Depot, DepotParameters};
use crate::engine::env::{Device, Env, IoClass};
use crate::engine::error::Error;
use crate::engine::format::geometry::{is_unformatted, Geometry};
use crate::engine::format::layout::PartitionId;
use crate::engine::format::super_block::SuperBlock;
use crate::engine::journal::{Journal, JournalParameters};
use crate::engine::lbn_lock::LbnLocks;
use crate::engine::packer::Packer;
use crate::engine::statistics::Statistics;
use crate::engine::store::Store;
use crate::rt::atomic::{AtomicBool, AtomicU64};
use crate::rt::{Arc, Page};

/// What the table line, and the memory one is ready to spend, say about a volume.
#[derive(Debug, Clone, Copy)]
pub struct OpenParameters {
    /// Blocks that the volume has underneath. `None` takes what the volume says.
    pub physical_blocks: Option<u64>,
    /// Blocks that the volume presents. Larger than the volume says is adopted.
    pub logical_blocks: u64,
    /// Pages of the block map cache.
    pub cache_pages: usize,
    /// How long a block map page may stay dirty, in journal blocks.
    pub maximum_age_blocks: u64,
    /// Requests worked on at a time.
    pub requests: usize,
    /// Names that the volatile index holds.
    pub index_entries: usize,
    /// Whether new data is compressed.
    pub compression: bool,
    /// Whether new data is deduplicated.
    pub deduplication: bool,
}

impl<E: Env> Volume<E> {
    /// Opens the volume on the device of `env`.
    ///
    /// # Errors
    ///
    /// Anything that the volume says about itself and cannot be, and sizes that differ from the table line's.
    pub async fn open(env: Arc<E>, parameters: OpenParameters) -> Result<Arc<Self>, Error> {
        if parameters.requests == 0 {
            return Err(Error::Mismatch(
                "a volume needs at least one request at a time",
            ));
        }
        let statistics = Arc::new(Statistics::default())?;
        let index = Arc::new(VolatileIndex::new(parameters.index_entries)?)?;
        Self::open_with(env, parameters, statistics, index).await
    }

    /// The same, with counters and an index that may have been in use before.
    pub(super) async fn open_with(
        env: Arc<E>,
        parameters: OpenParameters,
        statistics: Arc<Statistics>,
        index: Arc<VolatileIndex>,
    ) -> Result<Arc<Self>, Error> {
        let (page, geometry) = read_geometry(&env).await?;
        let store = Arc::new(Store::new(
            env,
            geometry.bio_offset,
            Arc::clone(&statistics),
        )?)?;
        let (page, super_block) = read_super_block(&store, &geometry, page).await?;
        let logical_blocks = reconcile(&super_block, &parameters, store.env().device().blocks())?;

        let journal = Arc::new(make_journal(&store, &super_block)?)?;
        let age = parameters.maximum_age_blocks;
        if age == 0 || age > journal.usable_blocks() >> 1 {
            return Err(Error::Mismatch("the block map maximum age must be at least 1 and at most half of the recovery journal"));
        }
        let depot = Arc::new(make_depot(
            &store,
            &journal,
            &super_block,
            parameters.requests,
        )?)?;
        let block_map = BlockMap::new(
            Arc::clone(&store),
            Arc::clone(&journal),
            &block_map::Config {
                root_origin: super_block.block_map.root_origin,
                root_count: super_block.block_map.root_count,
                nonce: super_block.nonce,
                slabs: super_block.slab_depot,
                cache_pages: parameters.cache_pages,
                maximum_age_blocks: age,
            },
        )?;
        let keeper = SuperBlockKeeper::new(
            Arc::clone(&store),
            geometry.data_region.start,
            SuperBlock {
                unused: geometry.unused,
                ..super_block
            },
            page,
        )?;
        let formats = Arc::new(Admitted::new(super_block.required))?;
        let volume = Volume {
            parameters,
            geometry,
            dedupe: Dedupe::new(
                Arc::clone(&store),
                Arc::clone(&depot),
                index,
                Arc::clone(&formats),
                parameters.requests,
            )?,
            packer: Packer::new(Arc::clone(&store), parameters.requests)?,
            store,
            statistics,
            super_block: keeper,
            logical_blocks: AtomicU64::new(logical_blocks),
            compression: AtomicBool::new(parameters.compression),
            deduplication: AtomicBool::new(parameters.deduplication),
            formats,
            verifier: Verifier::new()?,
            journal,
            depot,
            block_map,
            lbn_locks: LbnLocks::new(parameters.requests)?,
            flusher: Flusher::new()?,
            activity: Activity::new()?,
            lifecycle: Lifecycle::new()?,
        };
        Ok(Arc::new(volume)?)
    }
}

async fn read_geometry<E: Env>(env: &Arc<E>) -> Result<(Page, Geometry), Error> {
    // Block 0 of the device, whatever the bio offset.
    let (page, result) = env
        .device()
        .read(Geometry::DEVICE_BLOCK, Page::new()?, IoClass::Metadata)
        .await;
    result?;
    if is_unformatted(&page) {
        return Err(Error::Unsupported(
            "block 0 of the device is empty: the device is not formatted",
        ));
    }
    let geometry = Geometry::decode(&page)?;
    Ok((page, geometry))
}

async fn read_super_block<E: Env>(
    store: &Arc<Store<E>>,
    geometry: &Geometry,
    page: Page,
) -> Result<(Page, SuperBlock), Error> {
    let (page, result) = store
        .read(geometry.data_region.start, page, IoClass::Metadata)
        .await;
    result?;
    let super_block = SuperBlock::decode(&page)?;
    super_block.validate(geometry)?;
    Ok((page, super_block))
}

/// The logical size that volume and table line agree on.
fn reconcile(
    super_block: &SuperBlock,
    parameters: &OpenParameters,
    device_blocks: u64,
) -> Result<u64, Error> {
    let config = &super_block.config;
    let physical = parameters.physical_blocks.unwrap_or(config.physical_blocks);
    let logical = config.reconcile(physical, parameters.logical_blocks)?;
    if logical > config.logical_blocks {
        crate::rt::warn!(
            "the table line has {} logical blocks, the volume {}: growing it",
            logical,
            config.logical_blocks
        );
    }
    if device_blocks < physical {
        return Err(Error::Mismatch(
            "the device is smaller than the volume on it",
        ));
    }
    Ok(logical)
}

fn make_journal<E: Env>(
    store: &Arc<Store<E>>,
    super_block: &SuperBlock,
) -> Result<Journal<E>, Error> {
    let partition = super_block.layout.partition(PartitionId::RecoveryJournal)?;
    let state = &super_block.recovery_journal;
    Ok(Journal::new(
        Arc::clone(store),
        JournalParameters {
            origin: partition.start,
            blocks: super_block.config.recovery_journal_size,
            nonce: super_block.nonce,
            recovery_count: super_block.recovery_count(),
            start: state.journal_start,
            logical_blocks_used: state.logical_blocks_used,
            block_map_data_blocks: state.block_map_data_blocks,
        },
    )?)
}

/// The block after the last slab.
fn make_depot<E: Env>(
    store: &Arc<Store<E>>,
    journal: &Arc<Journal<E>>,
    super_block: &SuperBlock,
    requests: usize,
) -> Result<Depot<E, Journal<E>>, Error> {
    Depot::new(
        Arc::clone(store),
        Arc::clone(journal),
        &DepotParameters {
            state: super_block.slab_depot,
            summary: super_block.layout.partition(PartitionId::SlabSummary)?,
            nonce: super_block.nonce,
            requests,
            counterpart: match super_block.slab_depot.has_map {
                true => super_block
                    .slab_depot
                    .without_map(super_block.config.slab_journal_blocks),
                false => super_block.slab_depot.with_map(),
            },
        },
    )
}
