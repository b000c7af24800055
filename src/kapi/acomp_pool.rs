// SPDX-License-Identifier: GPL-2.0

//! A fixed number of compression requests, and the futures that use them.
//!
//! A request owns source and destination until the driver has called back. The future holds them; a future that is dropped
//! early leaves them to its slot, and the callback hands them to the pool, see [`AcompPool::reclaim`], or frees them: memory is
//! never freed or reused under a device.
//!
//! A driver may keep such an abandoned request for ever. So the pool is not freed before the last of them has landed, and
//! until then neither is the transform, nor can the module go; but nobody waits for that, see [`late`](super::late).
//!
//! The pool's lock disables interrupts and is innermost. A callback may come in any context; it stores the result, wakes
//! and counts, nothing else. There is no policy here: no retry, no fallback, no log line.

use super::acomp::{Acomp, Operation, Request};
use super::late;
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
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};

/// What futures and callbacks change.
struct State {
    /// Slots nobody uses. Has room for all.
    free: KVec<SlotRef>,
    /// Buffers of abandoned compressions that have landed. Has room for those of all slots.
    returned: KVec<(Page, PagePair)>,
    /// Requests in flight whose future is gone.
    abandoned: usize,
    /// The pool's owner waits for callbacks that are returning.
    closing: bool,
    /// The pool has no owner any more: whoever lands the last request has it freed.
    late: bool,
}

/// A pool. See the [module documentation](self).
///
/// # Invariants
///
/// The pointer came from a pinned box. The pool is live, and has no other owner.
pub struct AcompPool(NonNull<Pool>);

// SAFETY: all it has may be used from any thread, see `Slot` and `Acomp`.
unsafe impl Send for AcompPool {}
// SAFETY: as above.
unsafe impl Sync for AcompPool {}

/// What the requests of a pool share.
#[pin_data]
struct Pool {
    slots: KVec<Slot>,
    #[pin]
    state: SpinLockIrq<State>,
    /// Requests the driver has, including callbacks that have not returned. A callback counts down under the lock.
    in_flight: AtomicUsize,
    /// A request has landed, and `closing` is set.
    #[pin]
    landed: CondVar,
    /// Tasks that wait for a slot.
    available: WaitList,
    /// Frees the pool.
    #[pin]
    work: Work<Pool>,
    // After the requests on it.
    acomp: Acomp,
}

impl_has_work! {
    impl HasWork<Self> for Pool { self.work }
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
    pool: NonNull<Pool>,
}

// SAFETY: who may touch what is said at the fields; a slot is used by one future at a time.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

/// A pointer into [`Pool::slots`].
#[derive(Clone, Copy)]
struct SlotRef(NonNull<Slot>);

// SAFETY: a `Slot` is `Sync`.
unsafe impl Send for SlotRef {}

/// Buffers without a future.
enum Orphans {
    Pair(Page, PagePair),
    Pages { _source: Page, _destination: Page },
}

/// Where the output of an operation goes.
pub trait Destination: Send + Unpin + Sized {
    /// Its address.
    fn address(&self) -> NonNull<u8>;
    /// What is left of an abandoned operation.
    #[expect(private_interfaces, reason = "implemented here only")]
    fn orphan(self, source: Page) -> Orphans;
}

#[expect(private_interfaces, reason = "implemented here only")]
impl Destination for Page {
    fn address(&self) -> NonNull<u8> {
        self.as_raw()
    }

    fn orphan(self, source: Page) -> Orphans {
        Orphans::Pages {
            _source: source,
            _destination: self,
        }
    }
}

#[expect(private_interfaces, reason = "implemented here only")]
impl Destination for PagePair {
    fn address(&self) -> NonNull<u8> {
        self.as_raw()
    }

    fn orphan(self, source: Page) -> Orphans {
        Orphans::Pair(source, self)
    }
}

impl AcompPool {
    /// A pool of `requests` requests on `acomp`. Process context, may sleep.
    pub fn new(acomp: Acomp, requests: usize) -> Result<Self> {
        let pool = noio(|| Self::allocate(acomp, requests))?;
        // SAFETY: a `Pool` stays where it is until `release_box` puts the box together again.
        let pool = KBox::into_raw(unsafe { Pin::into_inner_unchecked(pool) });
        // INVARIANT: just made.
        let this = Self(NonNull::new(pool).ok_or(EINVAL)?);
        // SAFETY: nobody else knows of the pool yet. The slots are not pinned structurally.
        for slot in unsafe { &mut (*pool).slots }.iter_mut() {
            slot.pool = this.0;
        }
        let mut state = this.pool().state.lock();
        for slot in this.pool().slots.iter() {
            let _ = state
                .free
                .push_within_capacity(SlotRef(NonNull::from(slot)));
        }
        drop(state);
        Ok(this)
    }

    fn allocate(acomp: Acomp, requests: usize) -> Result<Pin<KBox<Pool>>> {
        late::is_ready()?;
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
            returned: KVec::with_capacity(requests, GFP_KERNEL)?,
            abandoned: 0,
            closing: false,
            late: false,
        };
        let available = WaitList::new()?;
        KBox::pin_init(
            pin_init!(Pool {
                slots,
                state <- new_spinlock_irq!(state, "rvdo::AcompPool"),
                in_flight: AtomicUsize::new(0),
                landed <- new_condvar!("rvdo::AcompPool::landed"),
                available,
                work <- new_work!("rvdo::AcompPool::work"),
                acomp,
            }),
            GFP_KERNEL,
        )
    }

    fn pool(&self) -> &Pool {
        // SAFETY: by the invariant.
        unsafe { self.0.as_ref() }
    }

    /// The transform.
    pub fn acomp(&self) -> &Acomp {
        &self.pool().acomp
    }

    /// Number of requests the driver has now.
    pub fn in_flight(&self) -> usize {
        self.pool().in_flight.load(Ordering::Relaxed)
    }

    /// How many of those nobody waits for any more.
    pub fn abandoned(&self) -> usize {
        self.pool().state.lock().abandoned
    }

    /// The buffers of an abandoned operation whose destination was a pair of pages, after the driver has returned them.
    pub fn reclaim(&self) -> Option<(Page, PagePair)> {
        self.pool().state.lock().returned.pop()
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
        let lease = self.pool().lease().await;
        let limit = limit.min(destination.len());
        let buffers = (source, destination);
        // SAFETY: pages are contiguous lowmem. `Flight` owns both buffers, or leaves them to the callback.
        unsafe { lease.start(Operation::Compress, &buffers.0[..], &buffers.1, limit) };
        let ((source, destination), result) = Flight::new(lease, limit, buffers).await;
        (source, destination, result)
    }

    /// Decompresses `source[range]` into `destination`. An invalid range is `EINVAL`.
    ///
    /// `Ok(n)`: the driver says it wrote `n` bytes, at most one page. Otherwise as [`compress`](Self::compress).
    pub async fn decompress<D: Destination>(
        &self,
        source: Page,
        range: Range<usize>,
        destination: D,
    ) -> (Page, D, Result<usize>) {
        let lease = self.pool().lease().await;
        let limit = source.len();
        let buffers = (source, destination);
        let Some(data) = buffers.0.get(range) else {
            return (buffers.0, buffers.1, Err(EINVAL));
        };
        // SAFETY: as for `compress`.
        unsafe { lease.start(Operation::Decompress, data, &buffers.1, limit) };
        let ((source, destination), result) = Flight::new(lease, limit, buffers).await;
        (source, destination, result)
    }
}

impl Drop for AcompPool {
    /// Does not wait for requests that were abandoned.
    fn drop(&mut self) {
        let pool = self.pool();
        let mut state = pool.state.lock();
        state.closing = true;
        // All futures are gone; those that got an answer got it from a callback that may be returning still.
        while pool.in_flight.load(Ordering::Acquire) != state.abandoned {
            pool.landed.wait(&mut state);
        }
        if state.abandoned > 0 {
            late::pin_module();
            state.late = true;
            return;
        }
        drop(state);
        pool.settle();
        // SAFETY: no request is in flight, nobody looks at one, and we own the pool.
        drop(unsafe { release_box(self.0) });
    }
}

/// The box that an [`AcompPool`] was made of.
///
/// # Safety
///
/// The caller owns the pool.
unsafe fn release_box(pool: NonNull<Pool>) -> Pin<KBox<Pool>> {
    // SAFETY: by the contract and the invariant of `AcompPool`.
    unsafe { Pin::new_unchecked(KBox::from_raw(pool.as_ptr())) }
}

impl WorkItem for Pool {
    type Pointer = Pin<KBox<Pool>>;

    /// The last request of a pool without an owner has landed.
    fn run(this: Pin<KBox<Pool>>) {
        // The callback that landed it holds the lock until it needs the pool no more.
        drop(this.state.lock());
        this.settle();
        drop(this);
        late::unpin_module();
    }
}

impl Pool {
    /// After the last callback: the driver may still look at the request, as that of QAT does.
    fn settle(&self) {
        if self.acomp.is_async() {
            late::callbacks_return();
        }
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

    /// The request of `slot` was abandoned, and is over now.
    fn release_abandoned(&self, slot: &Slot) {
        // SAFETY: abandoned, so the orphans are the callback's.
        if let Some(orphans) = unsafe { (*slot.orphans.get()).take() } {
            self.give_back(orphans);
        }
        let mut state = self.state.lock();
        state.abandoned = state.abandoned.wrapping_sub(1);
        drop(state);
        self.release(slot);
    }

    /// The buffers of an operation without a future are free. Any context.
    fn give_back(&self, orphans: Orphans) {
        if let Orphans::Pair(source, destination) = orphans {
            // Freed if nobody reclaims them and there are too many.
            let _ = self
                .state
                .lock()
                .returned
                .push_within_capacity((source, destination));
        }
    }
}

/// A callback is through. The pool may be gone when its lock is free again.
fn land(pool: NonNull<Pool>) {
    // SAFETY: the pool is there until `in_flight` has been counted down and the lock is free.
    let this = unsafe { pool.as_ref() };
    let state = this.state.lock();
    let is_last = this.in_flight.fetch_sub(1, Ordering::AcqRel) == 1;
    if state.late && is_last {
        // SAFETY: `late` means that the pool has no owner, and no other request can be the last.
        late::enqueue(unsafe { release_box(pool) });
    } else if state.closing {
        this.landed.notify_all();
    }
    drop(state);
}

/// The exclusive use of a slot.
struct Lease<'a> {
    pool: &'a Pool,
    slot: &'a Slot,
    /// Whether the slot goes to the callback instead of back to the pool.
    kept: bool,
}

impl Lease<'_> {
    /// # Safety
    ///
    /// Source and destination are physically contiguous lowmem that belongs to the driver until the slot's cell is
    /// complete. Called once per lease.
    unsafe fn start(
        &self,
        operation: Operation,
        source: &[u8],
        destination: &impl Destination,
        limit: usize,
    ) {
        let slot = self.slot;
        slot.cell.arm();
        self.pool.in_flight.fetch_add(1, Ordering::Relaxed);
        let capacity = u32::try_from(limit).unwrap_or(u32::MAX);
        let context = core::ptr::from_ref(slot).cast_mut().cast();
        // SAFETY: the lease makes the request ours, the pool outlives its requests in flight; the rest by the contract.
        let started = unsafe {
            slot.request.start(
                operation,
                source,
                destination.address(),
                capacity,
                done,
                context,
            )
        };
        if started != EINPROGRESS.to_errno() && started != EBUSY.to_errno() {
            // Over already, and `done` will not be called. We borrow the pool, so nobody waits for the count.
            let _ = slot.finish(started);
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
struct Flight<'a, D: Destination> {
    lease: Lease<'a>,
    limit: usize,
    /// `None` once the output has been returned.
    buffers: Option<(Page, D)>,
}

impl<'a, D: Destination> Flight<'a, D> {
    fn new(lease: Lease<'a>, limit: usize, buffers: (Page, D)) -> Self {
        Self {
            lease,
            limit,
            buffers: Some(buffers),
        }
    }
}

impl<D: Destination> Future for Flight<'_, D> {
    type Output = ((Page, D), Result<usize>);

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

impl<D: Destination> Drop for Flight<'_, D> {
    fn drop(&mut self) {
        let Some((source, destination)) = self.buffers.take() else {
            return;
        };
        let slot = self.lease.slot;
        let orphans = slot.orphans.get();
        // SAFETY: until the cell is abandoned this belongs to the future.
        unsafe { *orphans = Some(destination.orphan(source)) };
        match slot.cell.abandon() {
            // The callback frees the slot. It may have been here already.
            Owner::Other => {
                self.lease.kept = true;
                let mut state = self.lease.pool.state.lock();
                state.abandoned = state.abandoned.wrapping_add(1);
            }
            Owner::Caller => {
                // SAFETY: the operation is over, nobody else looks.
                if let Some(orphans) = unsafe { (*orphans).take() } {
                    self.lease.pool.give_back(orphans);
                }
            }
        }
    }
}

impl Slot {
    /// The operation ended with `result`. In any context. [`Owner::Caller`] if it had been abandoned; otherwise the slot may
    /// not be used afterwards.
    fn finish(&self, result: c_int) -> Owner {
        self.result.store(result, Ordering::Relaxed);
        self.cell.complete()
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
    let pool = slot.pool;
    if slot.finish(result) == Owner::Caller {
        // SAFETY: set in `new`; the pool is there until the request has landed.
        unsafe { pool.as_ref() }.release_abandoned(slot);
    }
    land(pool);
}
