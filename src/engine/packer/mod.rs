// SPDX-License-Identifier: GPL-2.0

//! The packer: puts compressed data of several writes into one block.
//!
//! A fragment goes into the fullest open bin of its format that has room for it: a block holds fragments of one format. A bin is closed, and then written, when it has 14 fragments or no
//! byte left, when it is the fullest and a smaller newcomer needs room, when it is the fullest and everybody else who could come waits
//! in a bin, when somebody waits for one of its members ([`Packer::kick`]), and when all bins are ([`Packer::flush`]). No timer does:
//! a fragment may sit here for as long as nobody asks for it, which its request does not notice, because it was acknowledged before.
//!
//! The task that put the first fragment into a bin writes it, to the block that was allocated for its own data; the others then give
//! their blocks back. A bin with one fragment is not worth a block of its own format: its task is told to store the data as it is.
//!
//! One lock, `state`, guards all bins. It is held for the copy of one fragment at most; under it only the depot's pin locks are
//! taken. [`Packer::pack`] waits until the bin was written; everything else is short.

mod bin;

use self::bin::{build, Bin, Phase};
use crate::engine::depot::Pin;
use crate::engine::env::{Env, IoClass, WriteFlags};
use crate::engine::error::Error;
use crate::engine::format::compressed_block::StreamFormat;
use crate::engine::format::{BlockCode, Mapping};
use crate::engine::pin::{Home, SharedBlock};
use crate::engine::store::Store;
use crate::engine::units::FragmentSlot;
use crate::rt::{spin_lock, AllocError, Arc, SpinLock, Vec, WaitList};

/// Most bins that take fragments at the same time.
pub const OPEN_BINS_MAX: usize = 16;
/// Bins besides those that are being written or whose members have not all left.
const CLOSED_BINS_MAX: usize = 256;

/// Names one use of a bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinTicket {
    bin: u32,
    generation: u64,
}

/// What became of a fragment.
pub enum Packed<H: Home> {
    /// It is in a compressed block. One reference has been claimed for the caller, whose own block was given back.
    Stored {
        /// Keeps the block until the reference is counted.
        pin: H::Pin,
        /// Where the fragment is.
        mapping: Mapping,
    },
    /// It is in no block. The caller stores its data in the block it had.
    Unpacked(H),
}

struct State<P> {
    bins: Vec<Bin<P>>,
    /// Bins that take fragments, in the order they were opened.
    open: Vec<u32>,
    idle: Vec<u32>,
    /// Fragments in the open bins.
    waiting: usize,
    is_closed: bool,
}

/// The tasks that wait for a bin.
struct Waiters {
    /// The one that opened it and is going to write it.
    opener: WaitList,
    /// The others.
    members: WaitList,
}

/// A place in a bin.
struct Place {
    ticket: BinTicket,
    /// The number of the fragment; 0 is the task that opened the bin.
    number: u8,
    is_closed: bool,
}

/// What the opener of a closed bin does with it.
struct Closed {
    pages: bin::Pages,
    format: StreamFormat,
    sizes: [u16; crate::engine::units::MAX_FRAGMENTS],
    count: u8,
}

/// The packer of one volume.
pub struct Packer<E: Env, P = Pin> {
    store: Arc<Store<E>>,
    state: SpinLock<State<P>>,
    waiters: Vec<Waiters>,
    /// Most fragments in open bins: one request less than there are, so that there is one to take the flush that empties them.
    waiting_max: usize,
}

impl<E: Env, P: SharedBlock> Packer<E, P> {
    /// A packer for as many requests at a time.
    pub fn new(store: Arc<Store<E>>, requests: usize) -> Result<Self, AllocError> {
        let bins = OPEN_BINS_MAX.saturating_add(requests.min(CLOSED_BINS_MAX));
        Ok(Self {
            store,
            state: spin_lock!(State {
                bins: Vec::from_fn(bins, |_| Bin::new())?,
                open: Vec::with_capacity(OPEN_BINS_MAX)?,
                idle: Vec::from_fn(bins, |index| u32::try_from(index).map_err(|_| AllocError))?,
                waiting: 0,
                is_closed: false,
            })?,
            waiters: Vec::from_fn(bins, |_| {
                Ok::<_, AllocError>(Waiters {
                    opener: WaitList::new()?,
                    members: WaitList::new()?,
                })
            })?,
            waiting_max: requests.saturating_sub(1),
        })
    }

    /// Puts `fragment`, which is of `format`, into a block together with others. `home` was allocated for the caller's data.
    ///
    /// Once the fragment is in a bin, `on_bin` is told which: it makes the ticket known to those who may want to
    /// [`Packer::kick`] it, and kicks the bin itself if they want to already. It is called without a lock.
    pub async fn pack<H: Home<Pin = P>>(
        &self,
        format: StreamFormat,
        fragment: &[u8],
        home: H,
        on_bin: impl FnOnce(BinTicket) + Send,
    ) -> Packed<H> {
        let Some(place) = self.place(format, fragment) else {
            return Packed::Unpacked(home);
        };
        let gauge = &self
            .store
            .statistics()
            .packer
            .compressed_fragments_in_packer;
        gauge.increment();
        if !place.is_closed {
            on_bin(place.ticket);
        }
        let packed = if place.number == 0 {
            self.lead(place.ticket, home).await
        } else {
            self.follow(place, home).await
        };
        gauge.decrement();
        packed
    }

    /// Closes a bin, because somebody waits for one of its members. Nothing happens if it is closed already.
    pub fn kick(&self, ticket: BinTicket) {
        let mut state = self.state.lock();
        let is_filling = state.bin(ticket.bin).is_some_and(|bin| {
            bin.generation == ticket.generation && matches!(bin.phase, Phase::Filling)
        });
        if is_filling {
            self.close_bin(&mut state, ticket.bin);
        }
    }

    /// Closes all bins. What comes later may enter a bin again.
    pub fn flush(&self) {
        let mut state = self.state.lock();
        while let Some(bin) = state.open.first().copied() {
            self.close_bin(&mut state, bin);
        }
    }

    /// Closes all bins and packs nothing until [`Packer::open`].
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.flush();
    }

    /// Packs again.
    pub fn open(&self) {
        self.state.lock().is_closed = false;
    }

    /// Finds a bin for a fragment and puts it there.
    fn place(&self, format: StreamFormat, fragment: &[u8]) -> Option<Place> {
        if fragment.is_empty() || fragment.len() > format.fragment_bytes_max() {
            return None;
        }
        let mut state = self.state.lock();
        if state.is_closed {
            return None;
        }
        let index = match state.fullest_with_room(format, fragment.len()) {
            Some(index) => index,
            None => {
                if state.open.len() >= OPEN_BINS_MAX {
                    let fullest = state.fullest()?;
                    if fragment.len() >= state.bin(fullest)?.used {
                        // It would take more room than what has to go for it.
                        return None;
                    }
                    self.close_bin(&mut state, fullest);
                }
                state.open_bin(format)?
            }
        };
        let bin = state.bin_mut(index)?;
        let number = bin.push(fragment)?;
        let ticket = BinTicket {
            bin: index,
            generation: bin.generation,
        };
        let mut is_closed = bin.is_full();
        state.waiting = state.waiting.saturating_add(1);
        if is_closed {
            self.close_bin(&mut state, index);
        } else if state.waiting > self.waiting_max {
            let fullest = state.fullest()?;
            is_closed = fullest == index;
            self.close_bin(&mut state, fullest);
        }
        Some(Place {
            ticket,
            number,
            is_closed,
        })
    }

    fn close_bin(&self, state: &mut State<P>, index: u32) {
        state.retire(index);
        if let Some(waiters) = self.waiters(index) {
            waiters.opener.wake_one();
        }
    }

    /// Waits until the bin that the caller opened is closed, and writes it.
    async fn lead<H: Home<Pin = P>>(&self, ticket: BinTicket, home: H) -> Packed<H> {
        let Some(waiters) = self.waiters(ticket.bin) else {
            return Packed::Unpacked(home);
        };
        let closed = waiters
            .opener
            .wait_until(|| self.state.lock().take_closed(ticket.bin))
            .await;
        let (count, code) = (closed.count, BlockCode::of_format(closed.format));
        if count < 2 {
            self.state
                .lock()
                .settle(ticket.bin, closed.pages, Phase::Failed, 0);
            return Packed::Unpacked(home);
        }
        let (pages, result) = self.write(closed, &home).await;
        let packed = match result {
            Ok(()) => {
                home.note_code(code);
                self.publish(ticket.bin, pages, count, home)
            }
            Err(_) => {
                let others = count.saturating_sub(1);
                self.state
                    .lock()
                    .settle(ticket.bin, pages, Phase::Failed, others);
                Packed::Unpacked(home)
            }
        };
        waiters.members.wake_all();
        packed
    }

    async fn write<H: Home>(&self, closed: Closed, home: &H) -> (bin::Pages, Result<(), Error>) {
        let Closed {
            mut pages,
            format,
            sizes,
            count,
        } = closed;
        if !build(&mut pages.block, format, &pages.fragments, &sizes, count) {
            return (
                pages,
                Err(Error::Corrupt("fragments do not fit into their block")),
            );
        }
        let bin::Pages { fragments, block } = pages;
        let (block, result) = self
            .store
            .write(home.pbn(), block, IoClass::Data, WriteFlags::DATA)
            .await;
        (bin::Pages { fragments, block }, result.map_err(Error::from))
    }

    /// Lets the members of a bin know that it was written, each with a reference to it.
    fn publish<H: Home<Pin = P>>(
        &self,
        index: u32,
        pages: bin::Pages,
        count: u8,
        home: H,
    ) -> Packed<H> {
        let counters = &self.store.statistics().packer;
        counters.compressed_blocks_written.increment();
        counters.compressed_fragments_written.add(count.into());

        let pbn = home.pbn();
        let pin = home.into_pin();
        // Before anybody else can claim any.
        let claimed = (0..count).take_while(|_| pin.claim()).count();
        let phase = Phase::Written {
            pin: pin.clone(),
            claimed: u8::try_from(claimed).unwrap_or(count),
        };
        let others = count.saturating_sub(1);
        self.state.lock().settle(index, pages, phase, others);
        Packed::Stored {
            pin,
            mapping: Mapping::compressed(pbn, FragmentSlot::ZERO),
        }
    }

    /// Waits until the bin that the caller joined was written.
    async fn follow<H: Home<Pin = P>>(&self, place: Place, home: H) -> Packed<H> {
        let index = place.ticket.bin;
        let Some(waiters) = self.waiters(index) else {
            return Packed::Unpacked(home);
        };
        let (pin, last) = waiters
            .members
            .wait_until(|| self.state.lock().learn(index, place.number))
            .await;
        // Dropping a pin takes the locks of slabs, which is not to happen under that of the packer.
        drop(last);
        match pin.zip(FragmentSlot::new(place.number)) {
            Some((pin, slot)) => {
                let mapping = Mapping::compressed(pin.pbn(), slot);
                Packed::Stored { pin, mapping }
            }
            None => Packed::Unpacked(home),
        }
    }

    fn waiters(&self, index: u32) -> Option<&Waiters> {
        self.waiters.get(usize::try_from(index).ok()?)
    }
}

impl<P: SharedBlock> State<P> {
    fn bin(&self, index: u32) -> Option<&Bin<P>> {
        self.bins.get(usize::try_from(index).ok()?)
    }

    fn bin_mut(&mut self, index: u32) -> Option<&mut Bin<P>> {
        self.bins.get_mut(usize::try_from(index).ok()?)
    }

    /// The open bin of `format` with the least room that is enough for `bytes`; the one that was opened first if there are several.
    fn fullest_with_room(&self, format: StreamFormat, bytes: usize) -> Option<u32> {
        self.fullest_of(|bin| bin.format == format && bytes <= bin.room())
    }

    /// The open bin with the least room; the one that was opened first if there are several.
    fn fullest(&self) -> Option<u32> {
        self.fullest_of(|_| true)
    }

    fn fullest_of(&self, suits: impl Fn(&Bin<P>) -> bool) -> Option<u32> {
        let mut best: Option<(u32, usize)> = None;
        for index in self.open.iter().copied() {
            let Some(bin) = self.bin(index) else {
                continue;
            };
            if suits(bin) && best.is_none_or(|(_, most)| bin.used > most) {
                best = Some((index, bin.used));
            }
        }
        best.map(|(index, _)| index)
    }

    fn open_bin(&mut self, format: StreamFormat) -> Option<u32> {
        let index = self.idle.pop()?;
        self.bin_mut(index)?.open(format);
        // There is room: the caller has counted the open bins.
        let _ = self.open.push_within_capacity(index);
        Some(index)
    }

    /// Takes no more fragments into a bin.
    fn retire(&mut self, index: u32) {
        let position = self.open.iter().position(|open| *open == index);
        if let Some(position) = position {
            // The order is kept, for the sake of `fullest_with_room`.
            if let Some(rest) = self.open.get_mut(position..) {
                rest.rotate_left(1);
            }
            self.open.pop();
        }
        let mut left = 0;
        if let Some(bin) = self.bin_mut(index) {
            bin.phase = Phase::Closed;
            left = usize::from(bin.count);
        }
        self.waiting = self.waiting.saturating_sub(left);
    }

    /// Takes the contents of a bin, once it is closed.
    fn take_closed(&mut self, index: u32) -> Option<Closed> {
        let bin = self.bin_mut(index)?;
        match bin.phase {
            Phase::Closed => Some(Closed {
                pages: bin.pages.take()?,
                format: bin.format,
                sizes: bin.sizes,
                count: bin.count,
            }),
            _ => None,
        }
    }

    /// Tells the `others` of a bin what became of it, and gives it its pages back.
    fn settle(&mut self, index: u32, pages: bin::Pages, phase: Phase<P>, others: u8) {
        let Some(bin) = self.bin_mut(index) else {
            return;
        };
        bin.pages = Some(pages);
        bin.phase = phase;
        bin.uninformed = others;
        if others == 0 {
            bin.phase = Phase::Idle;
            let _ = self.idle.push_within_capacity(index);
        }
    }

    /// What became of a member of a bin, and the bin's own pin if this was the last one to ask.
    fn learn(&mut self, index: u32, number: u8) -> Option<(Option<P>, Option<Phase<P>>)> {
        let bin = self.bin_mut(index)?;
        let pin = match &bin.phase {
            Phase::Written { pin, claimed } => (number < *claimed).then(|| pin.clone()),
            Phase::Failed => None,
            Phase::Idle | Phase::Filling | Phase::Closed => return None,
        };
        bin.uninformed = bin.uninformed.saturating_sub(1);
        let last = if bin.uninformed == 0 {
            let phase = core::mem::replace(&mut bin.phase, Phase::Idle);
            let _ = self.idle.push_within_capacity(index);
            Some(phase)
        } else {
            None
        };
        Some((pin, last))
    }
}
