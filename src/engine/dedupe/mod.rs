// SPDX-License-Identifier: GPL-2.0

//! Deduplication: storing the same data only once.
//!
//! A write asks with the name of its data ([`Dedupe::enter`]). The first one with a name becomes the agent: it looks the name up in
//! the [`Index`], pins the block that the index advises, reads it and compares it byte by byte; if it is no duplicate, the agent
//! stores its data and publishes where. Others that come with the same data meanwhile wait for the agent and then refer to the same
//! block. A name is only a hash: data is shared when it is equal, never because its name is.
//!
//! | file             | owns                                                   |
//! |------------------|--------------------------------------------------------|
//! | `hash_lock`      | the names being written, their agents and members      |
//! | `index`          | what an index is; [`VolatileIndex`] is one             |
//! | `buffers`        | memory for reading what may be a duplicate             |
//!
//! [`Dedupe::enter`] waits for the index, for reads and for other writes of the same data, with no spinlock held; those are named,
//! with their order, in `hash_lock`. The agent waits for no member, so members never wait in a circle.

mod buffers;
mod hash_lock;
mod index;
mod volatile_index;

pub use self::index::Index;
pub use self::volatile_index::VolatileIndex;

use self::buffers::{BufferPool, Buffers};
use self::hash_lock::{HashLocks, Join, Member, Woken};
use crate::engine::admitted::Admitted;
use crate::engine::depot::Depot;
use crate::engine::env::Env;
use crate::engine::format::block_name::Advice;
use crate::engine::format::{BlockCode, BlockName, Mapping, MappingState};
use crate::engine::packer::BinTicket;
use crate::engine::pin::{PinSource, SharedBlock};
use crate::engine::reader;
use crate::engine::statistics::IndexStats;
use crate::engine::store::Store;
use crate::engine::units::{Block, Pbn};
use crate::rt::{AllocError, Arc};

/// Most blocks that are read for comparison at the same time.
const READERS_MAX: usize = 256;

/// The deduplication of one volume.
pub struct Dedupe<E: Env, I: Index = Arc<VolatileIndex>, S: PinSource = Depot<E>> {
    store: Arc<Store<E>>,
    blocks: Arc<S>,
    index: I,
    formats: Arc<Admitted>,
    locks: HashLocks<S::Pin>,
    buffers: BufferPool,
}

/// How a write goes on.
pub enum Entry<'a, E: Env, I: Index = Arc<VolatileIndex>, S: PinSource = Depot<E>> {
    /// The data is stored already. A reference has been claimed for the caller.
    Duplicate(Claimed<'a, S::Pin>),
    /// The caller stores the data, and publishes where.
    Agent(AgentLock<'a, E, I, S>),
    /// The caller stores the data as it is and tells nobody: other data has the same name.
    Bypass,
}

/// A claimed reference to data that is stored. To be kept until the reference is counted.
pub struct Claimed<'a, P: SharedBlock> {
    mapping: Mapping,
    _pin: P,
    _member: Member<'a, P>,
}

impl<P: SharedBlock> Claimed<'_, P> {
    /// Where the data is.
    pub fn mapping(&self) -> Mapping {
        self.mapping
    }
}

/// The duty to store some data, and the right to tell others where it is.
///
/// To be kept until the agent's own reference is counted. If it is dropped without [`AgentLock::publish`], one of those who wait
/// takes over.
pub struct AgentLock<'a, E: Env, I: Index = Arc<VolatileIndex>, S: PinSource = Depot<E>> {
    dedupe: &'a Dedupe<E, I, S>,
    member: Member<'a, S::Pin>,
    name: BlockName,
    /// What the index says about the name, as far as it is known to be of any use.
    indexed: Option<Mapping>,
}

impl<E: Env, I: Index, S: PinSource> AgentLock<'_, E, I, S> {
    /// Whether others wait for the data to be stored: no time to compress it.
    pub fn is_contended(&self) -> bool {
        self.member.is_contended()
    }

    /// Says in which bin the data sits. `false` if somebody waits already: the bin has to be kicked at once.
    pub fn enter_bin(&self, bin: BinTicket) -> bool {
        self.member.enter_bin(bin)
    }

    /// The data is stored at `mapping`, in the block of `pin`: others may refer to it.
    pub fn publish(&self, mapping: Mapping, pin: &S::Pin) {
        self.member.publish(mapping, pin);
        if self.indexed != Some(mapping) {
            self.dedupe.index.update(&self.name, mapping);
        }
    }
}

impl<E: Env, I: Index, S: PinSource> Dedupe<E, I, S> {
    /// Deduplication for `requests` requests at a time, with blocks of `formats`.
    pub fn new(
        store: Arc<Store<E>>,
        blocks: Arc<S>,
        index: I,
        formats: Arc<Admitted>,
        requests: usize,
    ) -> Result<Self, AllocError> {
        Ok(Self {
            store,
            blocks,
            index,
            formats,
            locks: HashLocks::new(requests)?,
            buffers: BufferPool::new(requests.min(READERS_MAX))?,
        })
    }

    /// The index.
    pub fn index(&self) -> &I {
        &self.index
    }

    /// Asks whether `data`, which is called `name`, is stored or being stored.
    ///
    /// `home` is the block that the caller could store it in, if it has one. `kick` is called with the bin that the data of the
    /// agent sits in when the caller is going to wait for it.
    pub async fn enter(
        &self,
        name: BlockName,
        data: &Block,
        home: Option<Pbn>,
        kick: impl Fn(BinTicket) + Send + Sync,
    ) -> Entry<'_, E, I, S> {
        let counters = &self.store.statistics().hash_lock;
        loop {
            let mut member = match self.locks.join(name, data, home.is_some()) {
                Join::New(member) => return self.consult_index(member, name, data, home).await,
                Join::Successor(member) => return Entry::Agent(self.agent(member, name)),
                Join::Shared(member, mapping, pin) => {
                    counters.concurrent_data_matches.increment();
                    return duplicate(member, mapping, pin);
                }
                Join::Wait(member, bin) => {
                    counters.concurrent_data_matches.increment();
                    if let Some(bin) = bin {
                        kick(bin);
                    }
                    member
                }
                Join::Collision => {
                    counters.concurrent_hash_collisions.increment();
                    return Entry::Bypass;
                }
                Join::Full => return Entry::Bypass,
            };
            match member.wait().await {
                Woken::Agent => return Entry::Agent(self.agent(member, name)),
                Woken::Shared(mapping, pin) => return duplicate(member, mapping, pin),
                // Somebody else has used up the references: find out who replaces the block.
                Woken::Exhausted => drop(member),
            }
        }
    }

    /// What the index has done.
    pub fn index_statistics(&self) -> IndexStats {
        self.index.statistics()
    }

    fn agent<'a>(&'a self, member: Member<'a, S::Pin>, name: BlockName) -> AgentLock<'a, E, I, S> {
        AgentLock {
            dedupe: self,
            member,
            name,
            indexed: None,
        }
    }

    /// What the agent of a new name does first.
    async fn consult_index<'a>(
        &'a self,
        member: Member<'a, S::Pin>,
        name: BlockName,
        data: &Block,
        home: Option<Pbn>,
    ) -> Entry<'a, E, I, S> {
        let counters = &self.store.statistics().hash_lock;
        let posted = home.map(Mapping::uncompressed);
        let mut agent = self.agent(member, name);

        counters.curr_dedupe_queries.increment();
        let advice = self.index.query_or_post(&name, posted).await;
        counters.curr_dedupe_queries.decrement();
        let Some(advice) = advice else {
            agent.indexed = posted;
            return Entry::Agent(agent);
        };
        let Advice(mapping) = advice;
        let Some(pin) = self.verify(mapping, data).await else {
            counters.dedupe_advice_stale.increment();
            return Entry::Agent(agent);
        };
        counters.dedupe_advice_valid.increment();
        if !pin.claim() {
            return Entry::Agent(agent);
        }
        agent.member.publish(mapping, &pin);
        duplicate(agent.member, mapping, pin)
    }

    /// Pins the block of `mapping` if the data there is `data`. Whatever goes wrong means that it is not.
    async fn verify(&self, mapping: Mapping, data: &Block) -> Option<S::Pin> {
        if !mapping.has_block() || !self.blocks.is_data_block(mapping.pbn) {
            let errors = &self.store.statistics().errors;
            errors.invalid_advice_pbn_count.increment();
            return None;
        }
        let pin = self.blocks.pin_candidate(mapping.pbn)?;
        let Buffers {
            scratch,
            data: found,
        } = self.buffers.take().await;
        let (found, scratch, result) =
            reader::read_mapping(&self.store, mapping, scratch, found).await;
        let is_equal = result.is_ok() && *found == *data;
        let code = match mapping.state {
            MappingState::Compressed(_) => BlockCode::of_block(&scratch),
            MappingState::Unmapped | MappingState::Uncompressed => BlockCode::NONE,
        };
        // Nothing refers any more to what a downgrade has left behind, and nothing may again.
        let is_good = is_equal && self.formats.has_kind(code) && pin.note_code(code);
        self.buffers.give(Buffers {
            scratch,
            data: found,
        });
        is_good.then_some(pin)
    }
}

fn duplicate<E: Env, I: Index, S: PinSource>(
    member: Member<'_, S::Pin>,
    mapping: Mapping,
    pin: S::Pin,
) -> Entry<'_, E, I, S> {
    Entry::Duplicate(Claimed {
        mapping,
        _pin: pin,
        _member: member,
    })
}
