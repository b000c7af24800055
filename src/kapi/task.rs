// SPDX-License-Identifier: GPL-2.0

//! A task of the [`executor`](super::executor): a future, its state and its reference count in one allocation.
//!
//! The state says who may touch what:
//!
//! | state              | the task is                    | a wake-up              | the future belongs to |
//! |--------------------|--------------------------------|------------------------|-----------------------|
//! | 0                  | waiting                        | queues it              | nobody                |
//! | NOTIFIED           | in the run queue               | is one already         | the run queue         |
//! | RUNNING            | being polled                   | sets NOTIFIED          | the worker            |
//! | RUNNING + NOTIFIED | being polled, and once more    | is one already         | the worker            |
//! | DONE, anything     | over, its future is dropped    | is ignored             | nobody                |
//!
//! Every wake-up is a read-modify-write of the state, so what happened before it is visible to the poll it leads to.
//! The last reference may be dropped in any context: only plain kmalloc memory is freed then.

use super::executor::RunQueue;
use core::cell::UnsafeCell;
use core::future::Future;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::pin::Pin;
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicU8, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use core::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use kernel::alloc::AllocError;
use kernel::prelude::*;

const NOTIFIED: u8 = 1;
const RUNNING: u8 = 2;
const DONE: u8 = 4;

/// Largest future. It is built on the stack of the thread that spawns it.
const FUTURE_BYTES_MAX: usize = 8192;

/// What is known of a task without knowing its future.
struct Header {
    state: AtomicU8,
    references: AtomicUsize,
    /// The next task in the [`TaskQueue`], and touched by that alone.
    next: UnsafeCell<Option<TaskRef>>,
    run_queue: NonNull<RunQueue>,
    /// Polls the future. Called by one worker at a time, until it is ready.
    poll: unsafe fn(NonNull<Header>, &mut Context<'_>) -> Poll<()>,
    /// Drops the future in place. Called once.
    drop_future: unsafe fn(NonNull<Header>),
    /// Frees the memory.
    free: unsafe fn(NonNull<Header>),
}

/// See the [module documentation](self).
#[repr(C)]
pub(super) struct Task<F> {
    header: Header,
    future: UnsafeCell<ManuallyDrop<F>>,
}

impl<F: Future<Output = ()> + Send + 'static> Task<F> {
    /// A task that waits, with one reference: that of being alive.
    ///
    /// # Safety
    ///
    /// The run queue lives at least until the task is done.
    pub(super) unsafe fn allocate(
        future: F,
        run_queue: NonNull<RunQueue>,
    ) -> Result<TaskRef, AllocError> {
        const { assert!(size_of::<F>() <= FUTURE_BYTES_MAX) };
        let memory: KBox<MaybeUninit<Self>> = KBox::new_uninit(GFP_KERNEL)?;
        let task = KBox::into_raw(memory.write(Self {
            header: Header {
                state: AtomicU8::new(0),
                references: AtomicUsize::new(1),
                next: UnsafeCell::new(None),
                run_queue,
                poll: Self::poll,
                drop_future: Self::drop_future,
                free: Self::free,
            },
            future: UnsafeCell::new(ManuallyDrop::new(future)),
        }));
        // SAFETY: a box is not null.
        Ok(TaskRef(unsafe { NonNull::new_unchecked(task) }.cast()))
    }

    /// # Safety
    ///
    /// `header` is that of a `Task<F>` whose future has not been dropped and belongs to the caller.
    unsafe fn poll(header: NonNull<Header>, cx: &mut Context<'_>) -> Poll<()> {
        // SAFETY: by the contract; the header comes first.
        let future = unsafe { &mut **header.cast::<Self>().as_ref().future.get() };
        // SAFETY: the future stays where it is until it is dropped there.
        unsafe { Pin::new_unchecked(future) }.poll(cx)
    }

    /// # Safety
    ///
    /// As for [`Task::poll`].
    unsafe fn drop_future(header: NonNull<Header>) {
        // SAFETY: by the contract; nobody uses the future afterwards.
        unsafe { ManuallyDrop::drop(&mut *header.cast::<Self>().as_ref().future.get()) };
    }

    /// # Safety
    ///
    /// `header` is that of a `Task<F>` nobody else refers to, and its future has been dropped.
    unsafe fn free(header: NonNull<Header>) {
        // SAFETY: by the contract; the memory came from a box in `allocate`. The future in it is a `ManuallyDrop`.
        drop(unsafe { KBox::<Self>::from_raw(header.cast().as_ptr()) });
    }
}

/// A pointer to a task. Whoever has one makes sure that the task is there.
///
/// # Invariants
///
/// The task has at least one reference while this is used.
#[derive(Clone, Copy)]
pub(super) struct TaskRef(NonNull<Header>);

// SAFETY: the header is atomic or guarded by the run queue's lock; the future is `Send` and touched by one worker at a
// time.
unsafe impl Send for TaskRef {}

impl TaskRef {
    fn header(&self) -> &Header {
        // SAFETY: by the invariant.
        unsafe { self.0.as_ref() }
    }

    /// Makes sure that the task is polled after this call. In any context but NMI.
    pub(super) fn wake(self) {
        let header = self.header();
        if header.state.fetch_or(NOTIFIED, AcqRel) == 0 {
            // SAFETY: the task was waiting, and so is not done until a worker has taken it from the run queue.
            unsafe { header.run_queue.as_ref() }.push(self);
        }
    }

    /// Polls a task that was taken from `run_queue`. Returns whether it ended; then the pointer is dead.
    pub(super) fn run(self, run_queue: &RunQueue) -> bool {
        let header = self.header();
        // Wake-ups from here on lead to another poll.
        header.state.swap(RUNNING, AcqRel);
        let raw = RawWaker::new(self.data(), &VTABLE);
        // SAFETY: the table fits the data. The task holds its own reference while it runs, so none is counted for
        // this waker, and none is dropped with it.
        let waker = ManuallyDrop::new(unsafe { Waker::from_raw(raw) });
        // SAFETY: the state is `RUNNING`, so the future belongs to this worker.
        if unsafe { (header.poll)(self.0, &mut Context::from_waker(&waker)) }.is_ready() {
            // SAFETY: as above, and for the last time.
            unsafe { (header.drop_future)(self.0) };
            header.state.swap(DONE, AcqRel);
            self.put();
            return true;
        }
        if header
            .state
            .compare_exchange(RUNNING, 0, AcqRel, Acquire)
            .is_err()
        {
            // Woken meanwhile: to the end of the queue, the others first.
            header.state.swap(NOTIFIED, AcqRel);
            run_queue.push(self);
        }
        false
    }

    fn data(self) -> *const () {
        self.0.as_ptr().cast_const().cast()
    }

    /// Adds a reference.
    fn get(self) {
        self.header().references.fetch_add(1, Relaxed);
    }

    /// Drops a reference.
    fn put(self) {
        if self.header().references.fetch_sub(1, Release) == 1 {
            core::sync::atomic::fence(Acquire);
            // SAFETY: that was the last reference; the one of being alive is dropped after the future.
            unsafe { (self.header().free)(self.0) };
        }
    }
}

/// Tasks in the order in which they become ready.
///
/// A task is in one queue at most, and once: it is pushed only by whoever changed its state to `NOTIFIED`, and the state
/// stays so until it is popped.
pub(super) struct TaskQueue {
    first: Option<TaskRef>,
    last: Option<TaskRef>,
    len: usize,
}

impl TaskQueue {
    pub(super) const fn new() -> Self {
        Self {
            first: None,
            last: None,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn push(&mut self, task: TaskRef) {
        // SAFETY: the task is in no queue, so nobody else touches the field.
        unsafe { *task.header().next.get() = None };
        match self.last.replace(task) {
            // SAFETY: this task is in this queue, which is exclusively borrowed.
            Some(last) => unsafe { *last.header().next.get() = Some(task) },
            None => self.first = Some(task),
        }
        self.len = self.len.saturating_add(1);
    }

    /// Takes the first `count` tasks.
    pub(super) fn take(&mut self, count: usize) -> Self {
        let mut taken = Self::new();
        while taken.len < count {
            let Some(task) = self.pop() else { break };
            taken.push(task);
        }
        taken
    }

    pub(super) fn pop(&mut self) -> Option<TaskRef> {
        let task = self.first?;
        // SAFETY: the task is in this queue, which is exclusively borrowed.
        self.first = unsafe { *task.header().next.get() };
        if self.first.is_none() {
            self.last = None;
        }
        self.len = self.len.saturating_sub(1);
        Some(task)
    }
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);

/// The task behind a waker.
///
/// # Safety
///
/// `data` came from [`TaskRef::data`], and the waker's reference is still there.
unsafe fn task_of(data: *const ()) -> TaskRef {
    // SAFETY: by the contract it is the address of a header.
    TaskRef(unsafe { NonNull::new_unchecked(data.cast_mut().cast()) })
}

/// # Safety
///
/// As for [`task_of`]; so for the rest of the table.
unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: by the contract.
    unsafe { task_of(data) }.get();
    RawWaker::new(data, &VTABLE)
}

/// # Safety
///
/// As for [`task_of`].
unsafe fn wake(data: *const ()) {
    // SAFETY: by the contract.
    let task = unsafe { task_of(data) };
    task.wake();
    task.put();
}

/// # Safety
///
/// As for [`task_of`].
unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: by the contract.
    unsafe { task_of(data) }.wake();
}

/// # Safety
///
/// As for [`task_of`].
unsafe fn drop_waker(data: *const ()) {
    // SAFETY: by the contract.
    unsafe { task_of(data) }.put();
}
