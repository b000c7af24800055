// SPDX-License-Identifier: GPL-2.0

//! Runs tasks on a work queue.
//!
//! A task is a future in one allocation, made by [`Executor::spawn`]; running it allocates nothing. Ready tasks wait in one
//! run queue, from which one worker per CPU takes them in order. The work queue is `WQ_MEM_RECLAIM`: one worker always
//! makes progress, and one is enough for all tasks.
//!
//! Wakers may be used in any context but NMI. They take the run queue's lock, which disables interrupts and is innermost;
//! the work queue's own locks nest inside it. Tasks are polled in process context with no lock held. Block requests that a
//! few polls in a row make are sent together (a plug), so a poll must not wait for one otherwise than by `await`.

use super::noio::noio;
use super::task::{Task, TaskQueue, TaskRef};
use crate::bindings;
use core::ffi::c_void;
use core::future::Future;
use core::ptr::NonNull;
use kernel::prelude::*;
use kernel::sync::{
    new_condvar, new_spinlock, new_spinlock_irq, Arc, CondVar, SpinLock, SpinLockIrq,
};
use kernel::time::{Delta, Instant, Monotonic};
use kernel::workqueue::{impl_has_work, new_work, Queue, Work, WorkItem};

/// Polls before the block requests made so far are sent.
const BATCH_POLLS: usize = 64;

/// The same in time: a poll that compresses takes long.
const BATCH_TIME: Delta = Delta::from_micros(500);

/// Most tasks that a worker takes from the run queue at a time.
const TAKEN_MAX: usize = 8;

/// Most workers of one executor.
const WORKERS_MAX: usize = 64;

/// The ready tasks, and the workers that have nothing to do.
struct Ready {
    tasks: TaskQueue,
    /// Holds no worker that is queued or running. Has room for all.
    idle: KVec<Arc<Worker>>,
    /// How many workers there are, idle ones included.
    workers: usize,
    queue: QueueRef,
}

/// A work queue.
///
/// # Invariants
///
/// Came from `rvdo_alloc_workqueue`. Destroyed by the [`Executor`] when no task is left that could use it.
#[derive(Clone, Copy)]
struct QueueRef(NonNull<bindings::workqueue_struct>);

// SAFETY: work queues may be used from any thread.
unsafe impl Send for QueueRef {}
// SAFETY: as above.
unsafe impl Sync for QueueRef {}

impl QueueRef {
    /// # Safety
    ///
    /// The work queue has not been destroyed, nor will it be while the work item waits in it.
    unsafe fn enqueue(self, worker: Arc<Worker>) {
        // SAFETY: by the invariant and the contract.
        let queue = unsafe { Queue::from_raw(self.0.as_ptr().cast()) };
        // An idle worker is not queued, so this does not fail.
        let _ = queue.enqueue(worker);
    }
}

/// What wakers, workers and the executor share.
#[pin_data]
pub(super) struct RunQueue {
    #[pin]
    ready: SpinLockIrq<Ready>,
    /// Tasks that have not ended. Only taken in process context.
    #[pin]
    live: SpinLock<usize>,
    /// `live` became 0.
    #[pin]
    ended: CondVar,
}

impl RunQueue {
    /// Appends a task, and starts a worker if one is idle.
    pub(super) fn push(&self, task: TaskRef) {
        let mut ready = self.ready.lock();
        ready.tasks.push(task);
        if let Some(worker) = ready.idle.pop() {
            // Under the lock: once it is free, the task can end, and with the last task the work queue.
            // SAFETY: `task` has not ended, so the work queue is there. Destroying it waits for its work.
            unsafe { ready.queue.enqueue(worker) };
        }
    }

    /// Takes a worker's share of the ready tasks.
    fn take(&self) -> TaskQueue {
        let mut ready = self.ready.lock();
        let share = ready.tasks.len().checked_div(ready.workers).unwrap_or(1);
        ready.tasks.take(share.clamp(1, TAKEN_MAX))
    }

    /// Makes `worker` idle, or returns it if there is something to do.
    fn park(&self, worker: Arc<Worker>) -> Option<Arc<Worker>> {
        let mut ready = self.ready.lock();
        if !ready.tasks.is_empty() {
            return Some(worker);
        }
        // There is room; were there none, the worker would be lost, but not the task.
        let _ = ready.idle.push_within_capacity(worker);
        None
    }

    /// Polls ready tasks until there are none, or for as long as block requests should be held back.
    fn run_batch(&self) {
        let start = Instant::<Monotonic>::now();
        for _ in 0..BATCH_POLLS / TAKEN_MAX {
            let mut tasks = self.take();
            if tasks.is_empty() {
                return;
            }
            while let Some(task) = tasks.pop() {
                if task.run(self) {
                    self.end_task();
                }
            }
            if start.elapsed() > BATCH_TIME {
                return;
            }
        }
    }

    fn start_task(&self) {
        let mut live = self.live.lock();
        *live = live.saturating_add(1);
    }

    fn end_task(&self) {
        let mut live = self.live.lock();
        *live = live.saturating_sub(1);
        if *live == 0 {
            self.ended.notify_all();
        }
    }
}

/// Takes tasks from the run queue while there are any.
#[pin_data]
struct Worker {
    run_queue: Arc<RunQueue>,
    #[pin]
    work: Work<Worker>,
}

impl_has_work! {
    impl HasWork<Self> for Worker { self.work }
}

impl WorkItem for Worker {
    type Pointer = Arc<Worker>;

    fn run(mut this: Arc<Worker>) {
        // Not the last reference: the executor waits for this function before it drops its own.
        let run_queue = this.run_queue.clone();
        loop {
            let context = Arc::as_ptr(&run_queue).cast_mut().cast::<c_void>();
            // SAFETY: `run_batch` gets the pointer to a `RunQueue` which it expects, and does not keep it.
            unsafe { bindings::rvdo_run_plugged(Some(run_batch), context) };
            match run_queue.park(this) {
                Some(worker) => this = worker,
                None => return,
            }
        }
    }
}

/// # Safety
///
/// `run_queue` points to a live [`RunQueue`].
unsafe extern "C" fn run_batch(run_queue: *mut c_void) {
    // SAFETY: by the contract.
    unsafe { &*run_queue.cast::<RunQueue>() }.run_batch();
}

/// A set of tasks and the workers that run them.
///
/// Dropping it waits for the tasks, see [`Executor::drain`].
pub struct Executor {
    run_queue: Arc<RunQueue>,
    queue: QueueRef,
}

impl Executor {
    /// An executor without tasks, whose work queue is called `name`. Process context.
    pub fn new(name: &CStr) -> Result<Self> {
        // SAFETY: no requirements.
        let cpus = unsafe { bindings::rvdo_online_cpus() };
        let workers = usize::try_from(cpus)?.clamp(1, WORKERS_MAX);
        // SAFETY: `name` is a string, and is copied.
        let queue = noio(|| unsafe {
            bindings::rvdo_alloc_workqueue(name.as_char_ptr(), workers.try_into().unwrap_or(1))
        });
        // INVARIANT: as said.
        let queue = QueueRef(NonNull::new(queue).ok_or(ENOMEM)?);
        match noio(|| Self::with_workers(queue, workers)) {
            Ok(run_queue) => Ok(Self { run_queue, queue }),
            Err(e) => {
                queue.destroy();
                Err(e)
            }
        }
    }

    fn with_workers(queue: QueueRef, workers: usize) -> Result<Arc<RunQueue>> {
        let ready = Ready {
            tasks: TaskQueue::new(),
            idle: KVec::with_capacity(workers, GFP_KERNEL)?,
            workers,
            queue,
        };
        let run_queue = Arc::pin_init(
            pin_init!(RunQueue {
                ready <- new_spinlock_irq!(ready, "rvdo::RunQueue"),
                live <- new_spinlock!(0, "rvdo::RunQueue::live"),
                ended <- new_condvar!("rvdo::RunQueue::ended"),
            }),
            GFP_KERNEL,
        )?;
        for _ in 0..workers {
            let owner = run_queue.clone();
            let worker = Arc::pin_init(
                pin_init!(Worker {
                    run_queue: owner,
                    work <- new_work!("rvdo::Worker"),
                }),
                GFP_KERNEL,
            )
            .inspect_err(|_| release_workers(&run_queue))?;
            let _ = run_queue.park(worker);
        }
        Ok(run_queue)
    }

    /// Starts a task. Its memory is allocated here, may sleep, and is freed when the task has ended and its last waker
    /// is gone.
    pub fn spawn(
        &self,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), kernel::alloc::AllocError> {
        let run_queue = NonNull::from(&*self.run_queue);
        // SAFETY: the run queue lives until `drop` has seen this task end.
        let task = noio(|| unsafe { Task::allocate(future, run_queue) })?;
        self.run_queue.start_task();
        task.wake();
        Ok(())
    }

    /// Waits until every task has ended, uninterruptibly. Process context, but not one of the tasks.
    pub fn drain(&self) {
        let mut live = self.run_queue.live.lock();
        while *live != 0 {
            self.run_queue.ended.wait(&mut live);
        }
    }

    /// Number of tasks that have not ended.
    pub fn tasks(&self) -> usize {
        *self.run_queue.live.lock()
    }
}

impl QueueRef {
    fn destroy(self) {
        // SAFETY: by the invariant; the caller is the executor, which has no tasks. Waits for the workers to return.
        unsafe { bindings::rvdo_destroy_workqueue(self.0.as_ptr()) };
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.drain();
        self.queue.destroy();
        release_workers(&self.run_queue);
    }
}

/// Takes the workers out of the run queue, to which each holds a reference.
fn release_workers(run_queue: &RunQueue) {
    let idle = core::mem::take(&mut run_queue.ready.lock().idle);
    drop(idle);
}
