// SPDX-License-Identifier: GPL-2.0

//! A volume: all the parts together, from opening it to stopping it, and the way of a request through them.
//!
//! * `format.rs` making an empty device a volume;
//! * `open.rs` what the super block says, and the parts made from it;
//! * `life.rs` loading, suspending, resuming, stopping;
//! * `recover.rs`, `codes.rs`, `rebuild.rs` what a load does with a volume that was not saved, or has to be made anew;
//! * `data_path.rs`, `store_block.rs`, `request.rs` what happens to a request;
//! * `flusher.rs`, `activity.rs` what a flush and a suspend wait for;
//! * `algorithm_map.rs`, `formats.rs`, `upgrade.rs`, `downgrade.rs` which compressed formats the volume may hold, and how that changes;
//! * `verify.rs` decompressing what was just compressed; `sample.rs` a look at the data, for estimates;
//! * `report.rs` what a volume tells about itself;
//! * `grow_physical.rs` more blocks for a volume;
//! * `services.rs` the tasks behind them; `grow.rs` new block map pages; `super_block.rs` the super block.
//!
//! # Lock order
//!
//! No lock is held across an `.await`; those that are taken while another is held, outermost first: LBN lock shard, packer, hash
//! lock shard, allocator, slab, pins, block map shard, journal, wait lists. Most are never nested at all.

mod activity;
mod algorithm_map;
mod codes;
mod data_path;
mod downgrade;
mod flusher;
mod format;
mod formats;
mod grow;
mod grow_physical;
mod life;
mod open;
mod rebuild;
mod rebuild_walk;
mod recover;
mod report;
mod request;
mod sample;
mod services;
mod store_block;
mod super_block;
mod upgrade;
mod verify;

use crate::engine::admitted::Admitted;
use crate::engine::block_map::BlockMap;
use crate::engine::dedupe::Dedupe;
use crate::engine::depot::{Depot, Pin};
use crate::engine::env::Env;
use crate::engine::format::geometry::Geometry;
use crate::engine::journal::Journal;
use crate::engine::lbn_lock::{LbnLock, LbnLocks};
use crate::engine::packer::{BinTicket, Packer};
use crate::engine::statistics::Statistics;
use crate::engine::store::Store;
use crate::engine::units::Lbn;
use crate::rt::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::rt::Arc;

pub use self::downgrade::DowngradeError;
pub use self::life::SuspendKind;
pub use self::open::OpenParameters;
pub use self::sample::Sampler;
pub use self::upgrade::UpgradePlan;

/// A dm-vdo volume.
pub struct Volume<E: Env> {
    parameters: OpenParameters,
    geometry: Geometry,
    store: Arc<Store<E>>,
    statistics: Arc<Statistics>,
    super_block: super_block::SuperBlockKeeper<E>,
    logical_blocks: AtomicU64,
    compression: AtomicBool,
    deduplication: AtomicBool,
    formats: Arc<Admitted>,
    verifier: verify::Verifier,
    journal: Arc<Journal<E>>,
    depot: Arc<Depot<E, Journal<E>>>,
    block_map: BlockMap<E, Journal<E>>,
    dedupe: Dedupe<E>,
    packer: Packer<E, Pin>,
    lbn_locks: LbnLocks<BinTicket>,
    flusher: flusher::Flusher,
    activity: activity::Activity,
    lifecycle: life::Lifecycle,
}

impl<E: Env> Volume<E> {
    /// Blocks that the volume presents.
    pub fn logical_blocks(&self) -> u64 {
        self.logical_blocks.load(Ordering::Relaxed)
    }

    /// Lets the volume present more blocks from the next resume on. It never presents fewer.
    pub fn grow_logical(&self, logical_blocks: u64) {
        self.logical_blocks
            .fetch_max(logical_blocks, Ordering::Relaxed);
    }

    /// Where the parts of the device are.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What the volume counts.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The device and the volume's read-only mode.
    pub fn store(&self) -> &Store<E> {
        &self.store
    }

    /// Switches compression on or off for writes that come from now on. Off also empties the packer.
    pub fn set_compression(&self, on: bool) {
        self.compression.store(on, Ordering::Relaxed);
        if !on {
            self.packer.flush();
        }
    }

    /// Switches deduplication on or off.
    pub fn set_deduplication(&self, on: bool) {
        self.deduplication.store(on, Ordering::Relaxed);
    }

    /// Whether new data is compressed.
    pub fn compresses(&self) -> bool {
        self.compression.load(Ordering::Relaxed)
    }

    /// Whether new data is deduplicated.
    pub fn deduplicates(&self) -> bool {
        self.deduplication.load(Ordering::Relaxed)
    }

    async fn lock(&self, lbn: Lbn) -> LbnLock<'_, BinTicket> {
        self.lbn_locks.lock(lbn, |bin| self.packer.kick(bin)).await
    }
}
