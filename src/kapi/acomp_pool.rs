// SPDX-License-Identifier: GPL-2.0

//! A fixed number of compression requests, and the futures that use them.
//!
//! A request owns source and destination until the driver has called back. The future holds them; a future that is dropped
//! early leaves them to its slot, and the callback frees them: memory is never freed or reused under a device.
//!
//! The pool's lock disables interrupts and is innermost. A callback may come in any context; it stores the result, wakes
//! and counts, nothing else. There is no policy here: no retry, no fallback, no log line.

use super::acomp::{Acomp, Operation, Request};
use super::noio::noio;
use super::page::{Page, PagePair};
use super::wake_cell::{Owner, WakeCell};
use crate::rt::WaitList;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::future::Future;
use core::ops::Range;
use core::pin::Pin;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use core::task::{Context, Poll};
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::{new_condvar, new_spinlock_irq, CondVar, SpinLockIrq};

/// What futures and callbacks change.
struct State {
    /// Slots nobody uses. Has room for all.
    free: KVec<SlotRef>,
}

/// See the [module documentation](self). Dropping it waits for the requests in flight.
#[pin_data(PinnedDrop)]
pub struct AcompPool {
    slots: KVec<Slot>,
    #[pin]
    state: SpinLockIrq<State>,
    /// Requests the driver has, including callbacks that have not returned. A callback counts down under the lock.
    in_flight: AtomicUsize,
    /// `in_flight` became 0.
    #[pin]
    landed: CondVar,
    /// Tasks that wait for a slot.
    available: WaitList,
    acomp: Acomp,
}

/// A request and what belongs to it.
struct Slot {
    request: Request,
    cell: WakeCell,
    /// 0 or a negative error number. Valid once `cell` is complete.
    result: AtomicI32,
    /// The buffers of an abandoned request. Belongs to the future until that abandons the cell, then to the callback.
    orphans: UnsafeCell<Option<Orphans>>,
    /// Set before the first use.
    pool: NonNull<AcompPool>,
}

// SAFETY: who may touch what is said at the fields; a slot is used by one future at a time.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

/// A pointer into [`AcompPool::slots`].
#[derive(Clone, Copy)]
struct SlotRef(NonNull<Slot>);

// SAFETY: a `Slot` is `Sync`.
unsafe impl Send for SlotRef {}

/// Buffers without a future.
#[expect(dead_code, reason = "kept only to be dropped")]
enum Orphans {
    Compression(Page, PagePair),
    Decompression(Page, Page),
}

/// Both buffers of an operation.
trait Buffers: Send + Unpin {
    fn orphan(self) -> Orphans;
}

impl Buffers for (Page, PagePair) {
    fn orphan(self) -> Orphans {
        Orphans::Compression(self.0, self.1)
    }
}

impl Buffers for (Page, Page) {
    fn orphan(self) -> Orphans {
        Orphans::Decompression(self.0, self.1)
    }
}

impl AcompPool {
    /// A pool of `requests` requests on `acomp`. Process context, may sleep.
    pub fn new(acomp: Acomp, requests: usize) -> Result<Pin<KBox<Self>>> {
        noio(|| Self::allocate(acomp, requests))
    }

    fn allocate(acomp: Acomp, requests: usize) -> Result<Pin<KBox<Self>>> {
        let mut slots = KVec::with_capacity(requests, GFP_KERNEL)?;
        for _ in 0..requests {
            let slot = Slot {
                request: acomp.allocate_request()?,
                cell: WakeCell::new(),
                result: AtomicI32::new(0),
                orphans: UnsafeCell::new(None),
                pool: NonNull::dangling(),
            };
            slots.push(slot, GFP_KERNEL)?;
        }
        let state = State {
            free: KVec::with_capacity(requests, GFP_KERNEL)?,
        };
        let available = WaitList::new()?;
        let pool = KBox::pin_init(
            pin_init!(Self {
                slots,
                state <- new_spinlock_irq!(state, "rvdo::AcompPool"),
                in_flight: AtomicUsize::new(0),
                landed <- new_condvar!("rvdo::AcompPool::landed"),
                available,
                acomp,
            }),
            GFP_KERNEL,
        )?;
        Ok(Self::tie(pool))
    }

    /// Tells the slots where their pool is, now that it stays there.
    fn tie(mut pool: Pin<KBox<Self>>) -> Pin<KBox<Self>> {
        let address = NonNull::from(&*pool);
        // SAFETY: `slots` is not pinned structurally.
        let slots = unsafe { &mut pool.as_mut().get_unchecked_mut().slots };
        for slot in slots.iter_mut() {
            slot.pool = address;
        }
        let mut state = pool.state.lock();
        for slot in pool.slots.iter() {
            let _ = state
                .free
                .push_within_capacity(SlotRef(NonNull::from(slot)));
        }
        drop(state);
        pool
    }

    /// The transform.
    pub fn acomp(&self) -> &Acomp {
        &self.acomp
    }

    /// Number of requests the driver has now.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Compresses `source` into the first `limit` bytes of `destination` (at most all of it).
    ///
    /// `Ok(n)`: the driver says it wrote `n` bytes, `n <= limit`. Waits for a free request first. To be polled in task
    /// context; software implementations compute there, with bottom halves disabled.
    pub async fn compress(
        &self,
        source: Page,
        destination: PagePair,
        limit: usize,
    ) -> (Page, PagePair, Result<usize>) {
        let lease = self.lease().await;
        let limit = limit.min(destination.len());
        // SAFETY: pages are contiguous lowmem. `Flight` owns both buffers, or leaves them to the callback.
        unsafe {
            lease.start(
                Operation::Compress,
                &source[..],
                destination.as_raw(),
                limit,
            )
        };
        let ((source, destination), result) = Flight {
            lease,
            limit,
            buffers: Some((source, destination)),
        }
        .await;
        (source, destination, result)
    }

    /// Decompresses `source[range]` into `destination`. An invalid range is `EINVAL`.
    ///
    /// `Ok(n)`: the driver says it wrote `n` bytes, at most all of `destination`. Otherwise as
    /// [`compress`](Self::compress).
    pub async fn decompress(
        &self,
        source: Page,
        range: Range<usize>,
        destination: Page,
    ) -> (Page, Page, Result<usize>) {
        let lease = self.lease().await;
        let limit = destination.len();
        let Some(data) = source.get(range) else {
            return (source, destination, Err(EINVAL));
        };
        // SAFETY: as for `compress`.
        unsafe { lease.start(Operation::Decompress, data, destination.as_raw(), limit) };
        let ((source, destination), result) = Flight {
            lease,
            limit,
            buffers: Some((source, destination)),
        }
        .await;
        (source, destination, result)
    }

    /// Waits for a free slot.
    async fn lease(&self) -> Lease<'_> {
        let slot = self
            .available
            .wait_until(|| self.state.lock().free.pop())
            .await;
        // SAFETY: it points into `slots`, which lives as long as the pool.
        let slot = unsafe { slot.0.as_ref() };
        Lease {
            pool: self,
            slot,
            kept: false,
        }
    }

    fn release(&self, slot: &Slot) {
        // There is room for all slots.
        let _ = self
            .state
            .lock()
            .free
            .push_within_capacity(SlotRef(NonNull::from(slot)));
        self.available.wake_one();
    }

    /// A callback is through. The pool may be gone when the lock is free again.
    fn land(&self) {
        let _state = self.state.lock();
        if self.in_flight.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.landed.notify_all();
        }
    }
}

#[pinned_drop]
impl PinnedDrop for AcompPool {
    /// Waits until the driver has given every request back, uninterruptibly: it may write to their memory until then.
    fn drop(self: Pin<&mut Self>) {
        let this = self.as_ref().get_ref();
        let mut state = this.state.lock();
        while this.in_flight.load(Ordering::Acquire) != 0 {
            this.landed.wait(&mut state);
        }
    }
}

/// The exclusive use of a slot.
struct Lease<'a> {
    pool: &'a AcompPool,
    slot: &'a Slot,
    /// Whether the slot goes to the callback instead of back to the pool.
    kept: bool,
}

impl Lease<'_> {
    /// # Safety
    ///
    /// Source and destination are physically contiguous lowmem that belongs to the driver until the slot's cell is
    /// complete. Called once per lease.
    unsafe fn start(&self, operation: Operation, source: &[u8], target: NonNull<u8>, limit: usize) {
        let slot = self.slot;
        slot.cell.arm();
        self.pool.in_flight.fetch_add(1, Ordering::Relaxed);
        let capacity = u32::try_from(limit).unwrap_or(u32::MAX);
        let context = core::ptr::from_ref(slot).cast_mut().cast();
        // SAFETY: the lease makes the request ours, the pool outlives its requests in flight; the rest by the contract.
        let started = unsafe {
            slot.request
                .start(operation, source, target, capacity, done, context)
        };
        if started != EINPROGRESS.to_errno() && started != EBUSY.to_errno() {
            // Over already, and `done` will not be called. We borrow the pool, so nobody waits for the count.
            finish(self.pool, slot, started);
            self.pool.in_flight.fetch_sub(1, Ordering::Release);
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.pool.release(self.slot);
        }
    }
}

/// A started operation, and the buffers it uses.
struct Flight<'a, B: Buffers> {
    lease: Lease<'a>,
    limit: usize,
    /// `None` once the output has been returned.
    buffers: Option<B>,
}

impl<B: Buffers> Future for Flight<'_, B> {
    type Output = (B, Result<usize>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let slot = self.lease.slot;
        if !slot.cell.poll(cx) {
            return Poll::Pending;
        }
        let Some(buffers) = self.buffers.take() else {
            return Poll::Pending;
        };
        let result = to_result(slot.result.load(Ordering::Relaxed)).and_then(|()| {
            let produced = usize::try_from(slot.request.produced())?;
            // A driver that says it wrote more than there is room for cannot be believed.
            if produced <= self.limit {
                Ok(produced)
            } else {
                Err(EOVERFLOW)
            }
        });
        Poll::Ready((buffers, result))
    }
}

impl<B: Buffers> Drop for Flight<'_, B> {
    fn drop(&mut self) {
        let Some(buffers) = self.buffers.take() else {
            return;
        };
        let slot = self.lease.slot;
        let orphans = slot.orphans.get();
        // SAFETY: until the cell is abandoned this belongs to the future.
        unsafe { *orphans = Some(buffers.orphan()) };
        match slot.cell.abandon() {
            // The callback frees the buffers and the slot.
            Owner::Other => self.lease.kept = true,
            // SAFETY: the operation is over, nobody else looks.
            Owner::Caller => drop(unsafe { (*orphans).take() }),
        }
    }
}

/// The operation of `slot` ended with `result`. In any context. The slot may not be used afterwards.
fn finish(pool: &AcompPool, slot: &Slot, result: c_int) {
    slot.result.store(result, Ordering::Relaxed);
    if slot.cell.complete() == Owner::Caller {
        // SAFETY: abandoned, so the orphans are the callback's.
        drop(unsafe { (*slot.orphans.get()).take() });
        pool.release(slot);
    }
}

/// The driver's callback. In any context.
///
/// # Safety
///
/// `context` points to the [`Slot`] of a request that the driver has.
unsafe extern "C" fn done(context: *mut c_void, result: c_int) {
    if result == EINPROGRESS.to_errno() {
        // It left the backlog, no more.
        return;
    }
    // SAFETY: by the contract.
    let slot = unsafe { &*context.cast::<Slot>() };
    // SAFETY: set in `tie`; the pool waits for `land`.
    let pool = unsafe { slot.pool.as_ref() };
    finish(pool, slot, result);
    pool.land();
}
