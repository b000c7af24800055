// SPDX-License-Identifier: GPL-2.0

//! A fixed set of own bios, each carrying one piece of memory to or from a device.
//!
//! All bios of a [`Pool`] are allocated with it. An operation waits asynchronously for a free one,
//! so the I/O path neither allocates nor blocks a worker: a bio in flight comes back from interrupt
//! context even if no task ever runs again. (A `bio_set` does not give that. Without permission to
//! block, `bio_alloc_bioset()` does not touch its reserve.)
//!
//! Memory moves into the operation and out of it with the result. A future that is dropped in
//! between leaves its memory to the completion handler.
//!
//! `pop` serialises those who take free slots, it is a leaf lock. Slots are given back without a
//! lock, from any context. [`Pool::transfer`] is all there is to await.

use core::cell::UnsafeCell;
use core::future::Future;
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::pin::Pin;
use core::ptr::{self, NonNull};
use core::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use core::task::{Context, Poll};

use kernel::prelude::*;
use kernel::sync::{Arc, Completion};
use kernel::types::Opaque;

use crate::bindings as b;
use crate::kapi::bio::BlockStatus;
use crate::kapi::bio_stage::BioStage;
use crate::kapi::wake_cell::{Owner, WakeCell};
use crate::rt::{spin_lock, Page, SpinLock, WaitList};

/// What an own bio carries.
///
/// # Safety
///
/// The memory that [`Payload::memory`] returns is part of the kernel's direct mapping, physically
/// contiguous, does not move with the payload, and is not accessed by anybody else while nobody has
/// a reference to the payload. A payload may be dropped in interrupt context.
pub unsafe trait Payload: Send + 'static {
    /// Start and length in bytes; `None`: the operation has no data.
    fn memory(&mut self) -> Option<(NonNull<u8>, u32)>;
}

// SAFETY: a `Page` owns one page of lowmem.
unsafe impl Payload for Page {
    fn memory(&mut self) -> Option<(NonNull<u8>, u32)> {
        Some((NonNull::from(&mut **self).cast(), 4096))
    }
}

// SAFETY: there is no memory.
unsafe impl Payload for () {
    fn memory(&mut self) -> Option<(NonNull<u8>, u32)> {
        None
    }
}

/// What to do with a payload.
#[derive(Clone, Copy)]
pub(super) struct Command<'a> {
    pub(super) operation: b::blk_opf_t,
    pub(super) sector: u64,
    /// Where the operation may wait for others like it.
    pub(super) stage: Option<&'a BioStage>,
}

/// One bio and what goes with it.
///
/// # Invariants
///
/// A slot belongs to the pool's free list, to one [`Idle`], to one [`Flight`], or, from submission
/// until `done` is completed, to the block layer. Only its owner touches `bio`, `vec` and
/// `payload`; `payload` is initialised from submission until [`Shared::collect`].
struct Slot<P: Payload> {
    bio: Opaque<b::bio>,
    vec: Opaque<b::bio_vec>,
    payload: UnsafeCell<MaybeUninit<P>>,
    done: WakeCell,
    /// The next free slot. Changed only by whoever puts the slot on the free list.
    next: AtomicPtr<Slot<P>>,
    /// Valid until the slot is given back.
    pool: *const Shared<P>,
}

/// The part of a pool that completion handlers refer to.
struct Shared<P: Payload> {
    device: NonNull<b::block_device>,
    free: AtomicPtr<Slot<P>>,
    /// Guards the removal from `free`: with one remover at a time the head cannot leave and come
    /// back unseen.
    pop: SpinLock<()>,
    waiters: WaitList,
    /// Slots off the free list, and one for the pool itself.
    users: AtomicUsize,
    idle: Pin<KBox<Completion>>,
}

impl<P: Payload> Shared<P> {
    fn take(&self) -> Option<NonNull<Slot<P>>> {
        let _guard = self.pop.lock();
        let mut head = self.free.load(Acquire);
        loop {
            let slot = NonNull::new(head)?;
            // SAFETY: the slots live as long as the pool, and under the lock the head stays on the
            // list.
            let next = unsafe { slot.as_ref() }.next.load(Relaxed);
            match self.free.compare_exchange_weak(head, next, AcqRel, Acquire) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        self.users.fetch_add(1, Relaxed);
        NonNull::new(head)
    }

    /// Puts a slot on the free list. Callable from any context.
    ///
    /// # Safety
    ///
    /// The caller owns `slot`, which is of this pool, and gives it up. Afterwards `self` may be
    /// gone.
    unsafe fn give_back(&self, slot: NonNull<Slot<P>>) {
        // SAFETY: the slots live as long as the pool, which waits for `users`.
        let next = unsafe { &slot.as_ref().next };
        let mut head = self.free.load(Relaxed);
        loop {
            next.store(head, Relaxed);
            match self
                .free
                .compare_exchange_weak(head, slot.as_ptr(), AcqRel, Relaxed)
            {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        self.waiters.wake_one();
        if self.users.fetch_sub(1, AcqRel) == 1 {
            self.idle.complete_all();
        }
    }

    /// Takes the result out of a slot and gives the slot back.
    ///
    /// # Safety
    ///
    /// The caller owns `slot`, whose operation has ended, and gives it up.
    unsafe fn collect(slot: NonNull<Slot<P>>) -> (P, BlockStatus) {
        // SAFETY: the slot is the caller's, so its pool still waits for it.
        let this = unsafe { slot.as_ref() };
        // SAFETY: initialised since submission by the type's invariants, and not read again.
        let payload = unsafe { (*this.payload.get()).assume_init_read() };
        let bio = this.bio.get();
        // SAFETY: the bio was initialised for the operation and has ended.
        let status = unsafe { (*bio).bi_status };
        // SAFETY: as above.
        unsafe { b::bio_uninit(bio) };
        this.done.arm();
        // SAFETY: the pool is valid by the field's description, and the slot is the caller's to
        // give.
        unsafe { (*this.pool).give_back(slot) };
        (payload, BlockStatus::from_raw(status))
    }
}

/// A fixed set of bios for one device and one type of payload.
///
/// Dropping it waits until every operation has ended, whether or not its future is still there.
pub(super) struct Pool<P: Payload> {
    shared: Arc<Shared<P>>,
    /// Not touched any more, only kept: slots are reached through the free list.
    _slots: KVVec<Slot<P>>,
}

// SAFETY: slots are handed from owner to owner through the free list and `done`, whose atomics
// order the accesses. A block device may be used from any thread.
unsafe impl<P: Payload> Send for Pool<P> {}
// SAFETY: as above.
unsafe impl<P: Payload> Sync for Pool<P> {}

impl<P: Payload> Pool<P> {
    /// Allocates `count` bios, which is how many operations can be in flight.
    ///
    /// # Safety
    ///
    /// `device` stays open until the pool is dropped.
    pub(super) unsafe fn new(device: NonNull<b::block_device>, count: usize) -> Result<Self> {
        let shared = Arc::new(
            Shared {
                device,
                free: AtomicPtr::new(ptr::null_mut()),
                pop: spin_lock!(()).map_err(|_| ENOMEM)?,
                waiters: WaitList::new().map_err(|_| ENOMEM)?,
                users: AtomicUsize::new(1),
                idle: KBox::pin_init(Completion::new(), GFP_KERNEL)?,
            },
            GFP_KERNEL,
        )?;
        let mut slots = KVVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            let slot = Slot {
                bio: Opaque::uninit(),
                vec: Opaque::uninit(),
                payload: UnsafeCell::new(MaybeUninit::uninit()),
                done: WakeCell::new(),
                next: AtomicPtr::new(ptr::null_mut()),
                pool: &*shared,
            };
            slots.push(slot, GFP_KERNEL)?;
        }
        // The vector does not grow again, so its elements stay where they are.
        let first: *mut Slot<P> = slots.as_mut_ptr();
        for index in 0..count {
            // SAFETY: `index` is within the vector.
            let slot = unsafe { &*first.add(index) };
            slot.next.store(shared.free.load(Relaxed), Relaxed);
            shared.free.store(first.wrapping_add(index), Relaxed);
        }
        Ok(Self {
            shared,
            _slots: slots,
        })
    }

    fn take(&self) -> Option<Idle<'_, P>> {
        // INVARIANT: the slot has just left the free list.
        self.shared.take().map(|slot| Idle {
            slot,
            pool: &self.shared,
        })
    }

    /// Carries `payload` to or from the device; returns it with the device's answer.
    pub(super) async fn transfer(&self, command: Command<'_>, payload: P) -> (P, BlockStatus) {
        let idle = self.shared.waiters.wait_until(|| self.take()).await;
        idle.submit(command, payload).await
    }
}

impl<P: Payload> Drop for Pool<P> {
    fn drop(&mut self) {
        if self.shared.users.fetch_sub(1, AcqRel) != 1 {
            self.shared.idle.wait_for_completion();
        }
    }
}

/// A slot that has nothing to do.
///
/// # Invariants
///
/// Owns `slot`, whose `payload` is not initialised.
struct Idle<'a, P: Payload> {
    slot: NonNull<Slot<P>>,
    pool: &'a Shared<P>,
}

// SAFETY: a slot may be used from any thread, by one at a time.
unsafe impl<P: Payload> Send for Idle<'_, P> {}

impl<'a, P: Payload> Idle<'a, P> {
    fn submit(self, command: Command<'_>, mut payload: P) -> Flight<'a, P> {
        let slot = ManuallyDrop::new(self).slot;
        // SAFETY: the slot is ours by the type's invariants.
        let this = unsafe { slot.as_ref() };
        let bio = this.bio.get();
        let memory = payload.memory();
        // SAFETY: the slot is ours, nobody else accesses its payload.
        unsafe { (*this.payload.get()).write(payload) };
        // SAFETY: the slot is valid, hence so is its pool.
        let device = unsafe { (*this.pool).device };
        // SAFETY: bio and vector are ours and stay in place, the device is open while the pool
        // lives.
        unsafe { b::bio_init(bio, device.as_ptr(), this.vec.get(), 1, command.operation) };
        // SAFETY: the bio is ours and initialised.
        unsafe {
            (*bio).bi_iter.bi_sector = command.sector;
            (*bio).bi_end_io = Some(end_io::<P>);
            (*bio).bi_private = slot.as_ptr().cast();
        }
        if let Some((start, len)) = memory {
            // SAFETY: there is one vector, and the payload keeps its memory in place, see
            // `Payload`.
            unsafe { b::bio_add_virt_nofail(bio, start.as_ptr().cast(), len) };
        }
        // INVARIANT: from here on the slot is the block layer's.
        match (command.stage, NonNull::new(bio)) {
            // SAFETY: the bio is complete and ours, and `end_io` is called exactly once.
            (Some(stage), Some(bio)) => unsafe { stage.add(bio) },
            // SAFETY: as above.
            _ => unsafe { b::submit_bio_noacct(bio) },
        }
        Flight {
            slot: Some(slot),
            pool: PhantomData,
        }
    }
}

impl<P: Payload> Drop for Idle<'_, P> {
    fn drop(&mut self) {
        // SAFETY: the slot is ours and not used again.
        unsafe { self.pool.give_back(self.slot) };
    }
}

/// An operation that was submitted. Dropping it early leaves payload and slot to the completion
/// handler.
///
/// # Invariants
///
/// `slot` was submitted and has not been collected.
struct Flight<'a, P: Payload> {
    slot: Option<NonNull<Slot<P>>>,
    pool: PhantomData<&'a Pool<P>>,
}

// SAFETY: a slot may be used from any thread, by one at a time.
unsafe impl<P: Payload> Send for Flight<'_, P> {}

impl<P: Payload> Future for Flight<'_, P> {
    type Output = (P, BlockStatus);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(slot) = self.slot else {
            return Poll::Pending;
        };
        // SAFETY: the slot is valid as the pool is borrowed; `done` may be used by both sides.
        if !unsafe { slot.as_ref() }.done.poll(cx) {
            return Poll::Pending;
        }
        self.slot = None;
        // SAFETY: the operation has ended, which makes the slot ours.
        Poll::Ready(unsafe { Shared::collect(slot) })
    }
}

impl<P: Payload> Drop for Flight<'_, P> {
    fn drop(&mut self) {
        let Some(slot) = self.slot else { return };
        // SAFETY: as in `poll`.
        if unsafe { slot.as_ref() }.done.abandon() == Owner::Caller {
            // SAFETY: the operation has ended, which makes the slot ours.
            drop(unsafe { Shared::collect(slot) });
        }
    }
}

/// Called by the block layer, in any context, when the device has answered.
///
/// # Safety
///
/// `bio` is of a slot of a `Pool<P>` and was submitted by [`Idle::submit`].
unsafe extern "C" fn end_io<P: Payload>(bio: *mut b::bio) {
    // SAFETY: `bi_private` is the slot, see `Idle::submit`.
    let slot = unsafe { NonNull::new_unchecked((*bio).bi_private.cast::<Slot<P>>()) };
    // SAFETY: the slot is the block layer's, hence ours, until `complete` has been called.
    if unsafe { slot.as_ref() }.done.complete() == Owner::Caller {
        // SAFETY: the future is gone and has left the slot to us.
        drop(unsafe { Shared::collect(slot) });
    }
}
