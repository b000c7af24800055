// SPDX-License-Identifier: GPL-2.0

//! Doing many things of a kind, some of them at a time.

use core::future::Future;

use crate::engine::env::Env;
use crate::engine::error::Error;
use crate::engine::store::Store;
use crate::rt::atomic::{AtomicUsize, Ordering};
use crate::rt::{spin_lock, Arc, SpinLock, WaitList};

/// What the workers share.
struct Shared<F> {
    work: F,
    count: usize,
    next: AtomicUsize,
    running: AtomicUsize,
    failed: SpinLock<Option<Error>>,
    ended: WaitList,
}

impl<F> Shared<F> {
    fn fail(&self, error: Error) {
        self.failed.lock().get_or_insert(error);
    }

    fn end(&self) {
        self.running.fetch_sub(1, Ordering::AcqRel);
        self.ended.wake_all();
    }
}

/// Does `work` for every index below `count`, at most `workers` at a time, and waits until all is done.
///
/// After an error no further index is begun. The first error is the result.
pub async fn for_each<E, F, W>(
    store: &Store<E>,
    count: usize,
    workers: usize,
    work: F,
) -> Result<(), Error>
where
    E: Env,
    F: Fn(usize) -> W + Send + Sync + 'static,
    W: Future<Output = Result<(), Error>> + Send,
{
    let workers = workers.min(count);
    let shared = Arc::new(Shared {
        work,
        count,
        next: AtomicUsize::new(0),
        running: AtomicUsize::new(workers),
        failed: spin_lock!(None)?,
        ended: WaitList::new()?,
    })?;
    for _ in 0..workers {
        let worker = Arc::clone(&shared);
        if let Err(error) = store.spawn(async move { run(&worker).await }) {
            shared.fail(error.into());
            shared.end();
        }
    }
    shared
        .ended
        .wait_until(|| (shared.running.load(Ordering::Acquire) == 0).then_some(()))
        .await;
    let failed = *shared.failed.lock();
    failed.map_or(Ok(()), Err)
}

async fn run<F, W>(shared: &Shared<F>)
where
    F: Fn(usize) -> W,
    W: Future<Output = Result<(), Error>> + Send,
{
    loop {
        let index = shared.next.fetch_add(1, Ordering::Relaxed);
        if index >= shared.count || shared.failed.lock().is_some() {
            break;
        }
        if let Err(error) = (shared.work)(index).await {
            shared.fail(error);
        }
    }
    shared.end();
}
