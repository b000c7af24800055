// SPDX-License-Identifier: GPL-2.0

//! Runs one future on the calling thread.
//!
//! For the table's life cycle (load, suspend, resume, removal), where the kernel wants an answer before the function
//! returns. The thread waits uninterruptibly; the recovery of a large volume takes minutes, which is no hung task. Its
//! waker may be used in any context but NMI, and takes no lock of ours.

use super::noio::noio;
use crate::bindings;
use core::future::Future;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering::AcqRel};
use core::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use kernel::alloc::AllocError;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::types::Opaque;

/// Whether the thread was woken since it last looked.
#[pin_data]
struct Signal {
    woken: AtomicBool,
    /// Completed once each time `woken` becomes true.
    #[pin]
    changed: Opaque<bindings::completion>,
}

// SAFETY: a completion may be used from any thread.
unsafe impl Send for Signal {}
// SAFETY: as above.
unsafe impl Sync for Signal {}

impl Signal {
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            woken: AtomicBool::new(false),
            changed <- Opaque::ffi_init(|changed| {
                // SAFETY: it is where the completion is going to stay.
                unsafe { bindings::rvdo_completion_init(changed) }
            }),
        })
    }

    fn raise(&self) {
        if !self.woken.swap(true, AcqRel) {
            // SAFETY: initialised in `new`.
            unsafe { bindings::complete(self.changed.get()) };
        }
    }

    /// What happened before [`Signal::raise`] is visible afterwards.
    fn wait(&self) {
        // SAFETY: as above.
        unsafe { bindings::rvdo_completion_wait_idle(self.changed.get()) };
        self.woken.swap(false, AcqRel);
    }
}

/// What a thread needs to run futures. Made at load, so that running them cannot fail for want of memory.
pub struct Parker(Arc<Signal>);

impl Parker {
    /// Process context, may sleep.
    pub fn new() -> Result<Self, AllocError> {
        noio(|| Arc::pin_init(Signal::new(), GFP_KERNEL))
            .map(Self)
            .map_err(|_| AllocError)
    }

    /// Polls `future` on this thread until it is ready; waits uninterruptibly meanwhile.
    ///
    /// Process context, and not from a task of an executor on which the future depends.
    pub fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        let data = Arc::into_raw(self.0.clone()).cast::<()>();
        // SAFETY: the table expects a reference to a `Signal`, and this is a fresh one.
        let waker = unsafe { Waker::from_raw(RawWaker::new(data, &VTABLE)) };
        let mut cx = Context::from_waker(&waker);
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut cx) {
                Poll::Ready(output) => return output,
                Poll::Pending => self.0.wait(),
            }
        }
    }
}

/// Runs `future` on this thread, see [`Parker::block_on`]. Fails only before the first poll.
pub fn block_on<F: Future>(future: F) -> Result<F::Output, AllocError> {
    Ok(Parker::new()?.block_on(future))
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);

/// # Safety
///
/// `data` came from [`Arc::into_raw`] of a [`Signal`], and the waker's reference is still there; so for the whole table.
unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: by the contract. The waker's own reference stays.
    let signal = core::mem::ManuallyDrop::new(unsafe { Arc::<Signal>::from_raw(data.cast()) });
    RawWaker::new(Arc::into_raw(Arc::clone(&signal)).cast(), &VTABLE)
}

/// # Safety
///
/// As for [`clone`].
unsafe fn wake(data: *const ()) {
    // SAFETY: by the contract. The waker's reference goes with this one.
    unsafe { Arc::<Signal>::from_raw(data.cast()) }.raise();
}

/// # Safety
///
/// As for [`clone`].
unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: by the contract the reference outlives this call.
    unsafe { &*data.cast::<Signal>() }.raise();
}

/// # Safety
///
/// As for [`clone`].
unsafe fn drop_waker(data: *const ()) {
    // SAFETY: by the contract. The waker's reference goes with this one.
    drop(unsafe { Arc::<Signal>::from_raw(data.cast()) });
}
