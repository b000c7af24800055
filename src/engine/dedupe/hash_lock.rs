// SPDX-License-Identifier: GPL-2.0

//! Hash locks: one for each name that is being written.
//!
//! A lock has an *agent*, the task that finds out where the data is or stores it, and members that wait for the agent. Once the
//! agent has published a location, all members refer to it, each with a reference of its own.
//!
//! | state   | meaning                                                             | next               |
//! |---------|---------------------------------------------------------------------|--------------------|
//! | working | the agent is looking for the data or storing it                     | shared, vacant     |
//! | vacant  | the agent gave up; the next member that can store data takes over   | working            |
//! | shared  | the data is at a known location, which a pin keeps                  |                    |
//!
//! When the block of a shared lock has no reference left, a new lock takes its name over, and the old one dies with its members.
//!
//! The locks are in shards by name. A shard's spinlock guards the locks in it; under it the pool of data copies and the depot's pin
//! locks are taken. Pins are dropped outside. A [`Member`] waits with no spinlock held.

use crate::engine::format::{BlockName, Mapping};
use crate::engine::packer::BinTicket;
use crate::engine::pin::SharedBlock;
use crate::engine::table::{FixedTable, Key};
use crate::engine::units::Block;
use crate::rt::{spin_lock, AllocError, Page, SpinLock, Vec, WaitList};

/// Shards, a power of two.
const SHARDS: usize = 16;
/// Locks in a shard, unless there are fewer requests.
const SHARD_LOCKS_MIN: usize = 64;

impl Key for BlockName {
    fn as_bits(&self) -> u64 {
        self.key()
    }
}

enum State<P> {
    Idle,
    Working,
    Vacant,
    Shared { mapping: Mapping, pin: P },
}

struct HashLock<P> {
    name: BlockName,
    data: Option<Page>,
    state: State<P>,
    /// Tasks that have to do with the lock, the agent included.
    members: u32,
    /// Members that wait for the agent.
    waiters: u32,
    /// Waiters that could store the data.
    waiters_with_home: u32,
    /// The bin that the agent's data sits in.
    bin: Option<BinTicket>,
}

struct ShardState<P> {
    names: FixedTable<BlockName, u32>,
    locks: Vec<HashLock<P>>,
    idle: Vec<u32>,
}

struct Shard<P> {
    state: SpinLock<ShardState<P>>,
    /// The members of each lock that wait.
    waiters: Vec<WaitList>,
}

/// All hash locks of a volume.
pub(super) struct HashLocks<P> {
    shards: Vec<Shard<P>>,
    /// Room for copies of the data of locks.
    copies: SpinLock<Vec<Page>>,
}

/// What a task that came with some data finds.
pub(super) enum Join<'a, P: SharedBlock> {
    /// Nobody is writing this data: the caller is the agent.
    New(Member<'a, P>),
    /// Others are writing it where no reference is left: the caller is the agent for another place.
    Successor(Member<'a, P>),
    /// Somebody is writing it, and its data may sit in a bin.
    Wait(Member<'a, P>, Option<BinTicket>),
    /// Somebody has written it. A reference was claimed for the caller.
    Shared(Member<'a, P>, Mapping, P),
    /// Other data of the same name is being written.
    Collision,
    /// There are more names than there are locks.
    Full,
}

/// What a member that waited finds.
pub(super) enum Woken<P> {
    /// The agent gave up and the caller takes over.
    Agent,
    /// The agent stored the data. A reference was claimed for the caller.
    Shared(Mapping, P),
    /// The agent stored the data, but no reference is left: try again.
    Exhausted,
}

/// Membership in a lock.
///
/// # Invariants
///
/// Counted in `members` of its lock, and in `waiters` while `is_waiting`.
pub(super) struct Member<'a, P: SharedBlock> {
    locks: &'a HashLocks<P>,
    shard: &'a Shard<P>,
    index: u32,
    is_waiting: bool,
    has_home: bool,
    is_agent: bool,
}

impl<P: SharedBlock> HashLocks<P> {
    /// Locks for `requests` requests at a time.
    pub(super) fn new(requests: usize) -> Result<Self, AllocError> {
        // Names spread evenly. A shard that runs out in spite of the reserve costs some deduplication.
        let per_shard = requests
            .checked_div(SHARDS / 4)
            .unwrap_or(requests)
            .max(SHARD_LOCKS_MIN)
            .min(requests.max(1));
        Ok(Self {
            shards: Vec::from_fn(SHARDS, |_| Shard::new(per_shard))?,
            copies: spin_lock!(Vec::from_fn(requests, |_| Page::new())?)?,
        })
    }

    /// Joins the lock of a name, or makes one. `has_home`: the caller has a block to store the data in.
    pub(super) fn join(&self, name: BlockName, data: &Block, has_home: bool) -> Join<'_, P> {
        let hash = name.key().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24;
        let shard = usize::try_from(hash & 0xffff).unwrap_or(0) & SHARDS.wrapping_sub(1);
        let Some(shard) = self.shards.get(shard) else {
            return Join::Full;
        };
        let mut state = shard.state.lock();
        let member = |index, is_waiting, is_agent| Member {
            locks: self,
            shard,
            index,
            is_waiting,
            has_home,
            is_agent,
        };
        let Some(index) = state.names.get(&name).copied() else {
            return match self.create(&mut state, name, data) {
                Some(index) => Join::New(member(index, false, true)),
                None => Join::Full,
            };
        };
        let Some(lock) = state.lock_mut(index) else {
            return Join::Full;
        };
        if lock.data.as_deref().is_none_or(|other| other != data) {
            return Join::Collision;
        }
        match &lock.state {
            State::Shared { mapping, pin } => {
                if pin.claim() {
                    let (mapping, pin) = (*mapping, pin.clone());
                    lock.members = lock.members.saturating_add(1);
                    return Join::Shared(member(index, false, false), mapping, pin);
                }
                match self.create(&mut state, name, data) {
                    Some(index) => Join::Successor(member(index, false, true)),
                    None => Join::Full,
                }
            }
            _ => {
                lock.members = lock.members.saturating_add(1);
                lock.waiters = lock.waiters.saturating_add(1);
                if has_home {
                    lock.waiters_with_home = lock.waiters_with_home.saturating_add(1);
                }
                let bin = lock.bin.take();
                Join::Wait(member(index, true, false), bin)
            }
        }
    }

    /// Makes a lock, which takes over the name of another one if there is one.
    fn create(&self, state: &mut ShardState<P>, name: BlockName, data: &Block) -> Option<u32> {
        let index = state.idle.last().copied()?;
        let mut copy = self.copies.lock().pop()?;
        copy.copy_from_slice(data);
        let named = state.names.insert(name, index);
        if named.is_err() {
            // Not reached: there are as many names as locks.
            let _ = self.copies.lock().push_within_capacity(copy);
            return None;
        }
        state.idle.pop();
        let lock = state.lock_mut(index)?;
        *lock = HashLock {
            name,
            data: Some(copy),
            state: State::Working,
            members: 1,
            waiters: 0,
            waiters_with_home: 0,
            bin: None,
        };
        Some(index)
    }
}

impl<P> Shard<P> {
    fn new(locks: usize) -> Result<Self, AllocError> {
        Ok(Self {
            state: spin_lock!(ShardState {
                names: FixedTable::with_capacity(locks)?,
                locks: Vec::from_fn(locks, |_| Ok::<_, AllocError>(HashLock::idle()))?,
                idle: Vec::from_fn(locks, |index| u32::try_from(index).map_err(|_| AllocError))?,
            })?,
            waiters: Vec::from_fn(locks, |_| WaitList::new())?,
        })
    }
}

impl<P> HashLock<P> {
    fn idle() -> Self {
        Self {
            name: BlockName::default(),
            data: None,
            state: State::Idle,
            members: 0,
            waiters: 0,
            waiters_with_home: 0,
            bin: None,
        }
    }
}

impl<P> ShardState<P> {
    fn lock_mut(&mut self, index: u32) -> Option<&mut HashLock<P>> {
        self.locks.get_mut(usize::try_from(index).ok()?)
    }
}

impl<P: SharedBlock> Member<'_, P> {
    /// Waits for what the agent does.
    pub(super) async fn wait(&mut self) -> Woken<P> {
        let (shard, index, has_home) = (self.shard, self.index, self.has_home);
        let Some(waiters) = self.waiters() else {
            return Woken::Exhausted;
        };
        let woken = waiters
            .wait_until(|| {
                let mut state = shard.state.lock();
                let lock = state.lock_mut(index)?;
                let woken = match &lock.state {
                    State::Vacant if has_home || lock.waiters_with_home == 0 => {
                        lock.state = State::Working;
                        Woken::Agent
                    }
                    State::Shared { mapping, pin } => {
                        if pin.claim() {
                            Woken::Shared(*mapping, pin.clone())
                        } else {
                            Woken::Exhausted
                        }
                    }
                    _ => return None,
                };
                lock.stop_waiting(has_home);
                Some(woken)
            })
            .await;
        self.is_waiting = false;
        self.is_agent = matches!(woken, Woken::Agent);
        woken
    }

    /// Lets the others have what the agent stored or found.
    pub(super) fn publish(&self, mapping: Mapping, pin: &P) {
        let shared = State::Shared {
            mapping,
            pin: pin.clone(),
        };
        let old = self.with_lock(|lock| {
            lock.bin = None;
            core::mem::replace(&mut lock.state, shared)
        });
        self.wake();
        drop(old);
    }

    /// Whether others wait for the agent.
    pub(super) fn is_contended(&self) -> bool {
        self.with_lock(|lock| lock.waiters != 0).unwrap_or(false)
    }

    /// Says in which bin the agent's data sits. `false` if somebody waits for it already.
    pub(super) fn enter_bin(&self, bin: BinTicket) -> bool {
        self.with_lock(|lock| {
            if lock.waiters == 0 {
                lock.bin = Some(bin);
            }
            lock.waiters == 0
        })
        .unwrap_or(true)
    }

    fn with_lock<R>(&self, f: impl FnOnce(&mut HashLock<P>) -> R) -> Option<R> {
        self.shard.state.lock().lock_mut(self.index).map(f)
    }

    fn waiters(&self) -> Option<&WaitList> {
        self.shard.waiters.get(usize::try_from(self.index).ok()?)
    }

    fn wake(&self) {
        if let Some(waiters) = self.waiters() {
            waiters.wake_all();
        }
    }

    /// Leaves the lock. What the lock held is returned if this was its last member.
    fn leave(&self, state: &mut ShardState<P>) -> Option<HashLock<P>> {
        let index = self.index;
        let lock = state.lock_mut(index)?;
        if self.is_waiting {
            lock.stop_waiting(self.has_home);
        }
        if self.is_agent && matches!(lock.state, State::Working) {
            lock.bin = None;
            lock.state = State::Vacant;
        }
        lock.members = lock.members.saturating_sub(1);
        if lock.members != 0 {
            return None;
        }
        let old = core::mem::replace(lock, HashLock::idle());
        if state.names.get(&old.name) == Some(&index) {
            state.names.remove(&old.name);
        }
        let _ = state.idle.push_within_capacity(index);
        Some(old)
    }
}

impl<P> HashLock<P> {
    fn stop_waiting(&mut self, has_home: bool) {
        self.waiters = self.waiters.saturating_sub(1);
        if has_home {
            self.waiters_with_home = self.waiters_with_home.saturating_sub(1);
        }
    }
}

impl<P: SharedBlock> Drop for Member<'_, P> {
    fn drop(&mut self) {
        let last = {
            let mut state = self.shard.state.lock();
            self.leave(&mut state)
        };
        match last {
            Some(mut lock) => {
                if let Some(copy) = lock.data.take() {
                    // There is room for as many as there were.
                    let _ = self.locks.copies.lock().push_within_capacity(copy);
                }
            }
            // The others take over what an agent left undone.
            None if self.is_agent || self.is_waiting => self.wake(),
            None => {}
        }
    }
}
