// SPDX-License-Identifier: GPL-2.0

//! Where the data of a write goes: nowhere (zeros), to a block that has it already, into a compressed block with others, or into
//! a block of its own.

use core::pin::pin;

use super::flusher::Membership;
use super::request::{Buffers, Pending};
use super::Volume;
use crate::engine::block_map::Location;
use crate::engine::dedupe::{AgentLock, Claimed, Entry};
use crate::engine::depot::{Allocation, Pin};
use crate::engine::env::{Codec, CodecError, Compressed, Env, IoClass, WriteFlags};
use crate::engine::error::Error;
use crate::engine::format::recovery_journal_entry::{BlockMapSlot, JournalEntry, JournalOperation};
use crate::engine::format::{BlockCode, BlockName, Mapping};
use crate::engine::lbn_lock::LbnLock;
use crate::engine::packer::{BinTicket, Packed};
use crate::engine::units::BLOCK_SIZE;

/// What a write holds while its block is stored.
#[derive(Clone, Copy)]
pub(super) struct Ticket<'a> {
    pub(super) lock: &'a LbnLock<'a, BinTicket>,
    pub(super) membership: &'a Membership<'a>,
}

/// Where data was put. Keeps the place alive until the journal has recorded the new reference (W10).
struct Placement<'a, E: Env> {
    mapping: Mapping,
    _keep: Keep<'a, E>,
}

enum Keep<'a, E: Env> {
    Shared(#[expect(dead_code, reason = "held, not read")] Claimed<'a, Pin>),
    Own(#[expect(dead_code, reason = "held, not read")] Pin),
    Agent(
        #[expect(dead_code, reason = "held, not read")] AgentLock<'a, E>,
        #[expect(dead_code, reason = "held, not read")] Pin,
    ),
}

impl<E: Env> Volume<E> {
    /// Stores the block in `buffers.data` and maps it, acknowledging the request as soon as that is honest.
    pub(super) async fn store_block(
        &self,
        ticket: Ticket<'_>,
        pending: &mut Pending<'_, E>,
        buffers: Buffers,
    ) -> (Buffers, Result<(), Error>) {
        let location = match self.block_map.find_or_grow(ticket.lock.lbn(), self).await {
            Ok(location) => location,
            Err(error) => return (buffers, Err(error)),
        };
        if is_zero(&buffers.data) {
            ticket.membership.packed();
            pending.acknowledge();
            let result = pin!(self.remap(location, Mapping::ZERO_BLOCK)).await;
            return (buffers, result);
        }
        // A full volume still takes what it has already.
        let home = self.depot.allocate_patiently().await;
        if home.is_ok() {
            pending.acknowledge();
        }
        let (buffers, placement) =
            pin!(self.place(ticket, pending.is_deferred(), home, buffers)).await;
        match placement {
            Ok(placement) => {
                let result = pin!(self.remap(location, placement.mapping)).await;
                (buffers, result)
            }
            Err(error) => (buffers, Err(error)),
        }
    }
}

impl<E: Env> Volume<E> {
    /// Finds or makes a physical block that holds the data, with one reference to it claimed for this write.
    async fn place(
        &self,
        ticket: Ticket<'_>,
        deferred: bool,
        home: Result<Allocation, Error>,
        buffers: Buffers,
    ) -> (Buffers, Result<Placement<'_, E>, Error>) {
        if !self.deduplicates() {
            return pin!(self.place_alone(ticket, deferred, home, None, buffers)).await;
        }
        let name = BlockName::of(&buffers.data);
        let candidate = home.as_ref().ok().map(Allocation::pbn);
        match self
            .dedupe
            .enter(name, &buffers.data, candidate, |bin| self.packer.kick(bin))
            .await
        {
            Entry::Duplicate(claimed) => {
                ticket.membership.packed();
                // Dropping `home` gives the block back.
                let mapping = claimed.mapping();
                (
                    buffers,
                    Ok(Placement {
                        mapping,
                        _keep: Keep::Shared(claimed),
                    }),
                )
            }
            Entry::Agent(agent) => {
                pin!(self.place_alone(ticket, deferred, home, Some(agent), buffers)).await
            }
            Entry::Bypass => {
                ticket.membership.packed();
                pin!(self.write_raw(home, None, buffers)).await
            }
        }
    }

    /// Stores data that nobody else has: compressed if that is allowed and pays, otherwise as it is.
    async fn place_alone<'a>(
        &'a self,
        ticket: Ticket<'_>,
        deferred: bool,
        home: Result<Allocation, Error>,
        agent: Option<AgentLock<'a, E>>,
        buffers: Buffers,
    ) -> (Buffers, Result<Placement<'a, E>, Error>) {
        let wanted =
            agent.as_ref().is_some_and(AgentLock::is_contended) || ticket.lock.is_contended();
        let home = match home {
            Ok(home) if self.compresses() && !deferred && !wanted => home,
            other => {
                ticket.membership.packed();
                return pin!(self.write_raw(other, agent, buffers)).await;
            }
        };
        let (buffers, compressed) = pin!(self.compress(buffers)).await;
        let fragment =
            compressed.and_then(|made| Some((made.format, buffers.compressed.get(..made.bytes)?)));
        let Some((format, fragment)) = fragment else {
            ticket.membership.packed();
            return pin!(self.write_raw(Ok(home), agent, buffers)).await;
        };
        let packed = self
            .packer
            .pack(format, fragment, home, |bin| {
                let undisturbed = ticket.lock.enter_bin(bin)
                    && agent.as_ref().is_none_or(|agent| agent.enter_bin(bin));
                if !undisturbed {
                    self.packer.kick(bin);
                }
                ticket.membership.packed();
            })
            .await;
        ticket.membership.packed();
        ticket.lock.leave_bin();
        match packed {
            Packed::Stored { pin, mapping } => (buffers, Ok(publish(mapping, pin, agent))),
            Packed::Unpacked(home) => pin!(self.write_raw(Ok(home), agent, buffers)).await,
        }
    }

    /// Compresses `buffers.data`; what is in `buffers.compressed` then, or `None` if the data stays as it is.
    async fn compress(&self, buffers: Buffers) -> (Buffers, Option<Compressed>) {
        let Buffers {
            data,
            scratch,
            compressed,
        } = buffers;
        let codec = &self.store.statistics().codec;
        codec.calls.increment();
        codec.outstanding.increment();
        let (data, compressed, result) = pin!(self.store.codec().compress(data, compressed)).await;
        codec.outstanding.decrement();
        let buffers = Buffers {
            data,
            scratch,
            compressed,
        };
        match result {
            // A format that the super block does not know must not get to the disk, whoever made it.
            Ok(made) if self.may_store(made.format) => {
                codec.compressed(BLOCK_SIZE, made.bytes);
                pin!(self.verify(made, buffers)).await
            }
            Err(CodecError::Incompressible) => {
                codec.incompressible.increment();
                (buffers, None)
            }
            Ok(_) | Err(_) => {
                // The data is safe as it is: a codec in trouble costs space and nothing else.
                codec.errors.increment();
                (buffers, None)
            }
        }
    }

    /// Stores the block as it is in its own home.
    async fn write_raw<'a>(
        &'a self,
        home: Result<Allocation, Error>,
        agent: Option<AgentLock<'a, E>>,
        buffers: Buffers,
    ) -> (Buffers, Result<Placement<'a, E>, Error>) {
        let home = match home {
            Ok(home) => home,
            // Dropping `agent` lets those who waited for it look for another way.
            Err(error) => return (buffers, Err(error)),
        };
        let Buffers {
            data,
            scratch,
            compressed,
        } = buffers;
        let (data, result) = self
            .store
            .write(home.pbn(), data, IoClass::Data, WriteFlags::DATA)
            .await;
        let buffers = Buffers {
            data,
            scratch,
            compressed,
        };
        if let Err(error) = result {
            return (buffers, Err(error.into()));
        }
        let mapping = Mapping::uncompressed(home.pbn());
        home.note_code(BlockCode::NONE);
        let pin = home.into_pin();
        if !pin.claim() {
            return (
                buffers,
                Err(Error::Corrupt("a fresh block has no reference to give")),
            );
        }
        (buffers, Ok(publish(mapping, pin, agent)))
    }

    /// Maps `at` to `mapping`, which has a claimed reference, and gives the reference of the old mapping back.
    pub(super) async fn remap(&self, at: Location, mapping: Mapping) -> Result<(), Error> {
        self.store.read_only().check()?;
        let unmapping = match self.block_map.get(at).await {
            Ok(old) if !old.has_block() || self.depot.is_data_block(old.pbn) => old,
            // What cannot be read back is overwritten as if it were not there.
            Ok(_) | Err(Error::BadMapping) => Mapping::UNMAPPED,
            Err(error) => return Err(error),
        };
        if unmapping == mapping && !mapping.has_block() {
            return Ok(());
        }
        let entry = JournalEntry {
            operation: JournalOperation::DataRemap,
            slot: BlockMapSlot {
                page: at.page,
                slot: at.slot,
            },
            mapping,
            unmapping,
        };
        let recorded = self.journal.record(&entry).await?;
        self.block_map.put(at, mapping, recorded.sequence()).await
    }
}

/// Lets others that wait for the same data have it.
fn publish<'a, E: Env>(
    mapping: Mapping,
    pin: Pin,
    agent: Option<AgentLock<'a, E>>,
) -> Placement<'a, E> {
    let keep = match agent {
        Some(agent) => {
            agent.publish(mapping, &pin);
            Keep::Agent(agent, pin)
        }
        None => Keep::Own(pin),
    };
    Placement {
        mapping,
        _keep: keep,
    }
}

fn is_zero(block: &[u8; BLOCK_SIZE]) -> bool {
    block.chunks_exact(8).all(|word| word == [0; 8])
}
