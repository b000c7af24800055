// SPDX-License-Identifier: GPL-2.0

//! The executor: one lost wake-up, and the message never returns.
//!
//! Messages: `ring <tasks> <rounds> <tokens>` passes tokens round a ring of tasks; `timers <tasks> <rounds>` lets timers wake
//! tasks in soft interrupts, which wake each other; `crowd <tasks> <rounds>` has all tasks fight for two permits, with
//! waiters that give up; `naps <tasks> <rounds>` gives up sleeping; `late <tasks>` wakes tasks that have ended.

use core::fmt::Write;
use core::future::{poll_fn, Future};
use core::pin::pin;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::task::Poll;

use kernel::prelude::*;

use crate::kapi::block_on::block_on;
use crate::kapi::device_mapper::{Args, ResultText};
use crate::kapi::executor::Executor;
use crate::kapi::timer::Timer;
use crate::rt::{join2, spin_lock, yield_now, Arc, SpinLock, Vec, WaitList};

/// A counting semaphore as the engine makes one.
struct Semaphore {
    permits: SpinLock<u64>,
    waiters: WaitList,
}

impl Semaphore {
    fn new(permits: u64) -> Result<Self> {
        Ok(Self {
            permits: spin_lock!(permits)?,
            waiters: WaitList::new()?,
        })
    }

    fn try_acquire(&self) -> Option<()> {
        let mut permits = self.permits.lock();
        *permits = permits.checked_sub(1)?;
        Some(())
    }

    fn acquire(&self) -> impl Future<Output = ()> + Send + '_ {
        self.waiters.wait_until(|| self.try_acquire())
    }

    fn release(&self) {
        let mut permits = self.permits.lock();
        *permits = permits.wrapping_add(1);
        drop(permits);
        self.waiters.wake_one();
    }
}

/// What the tasks of one message share.
struct Group {
    /// One per task.
    turns: Vec<Semaphore>,
    ended: AtomicU64,
    all_ended: WaitList,
    events: AtomicU64,
}

impl Group {
    fn new(tasks: usize, permits: impl Fn(usize) -> u64) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            turns: Vec::from_fn(tasks, |i| Semaphore::new(permits(i)))?,
            ended: AtomicU64::new(0),
            all_ended: WaitList::new()?,
            events: AtomicU64::new(0),
        })?)
    }

    fn turn(&self, task: usize) -> Option<&Semaphore> {
        let index = task.checked_rem(self.turns.len())?;
        self.turns.get(index)
    }

    fn happened(&self) {
        self.events.fetch_add(1, Relaxed);
    }

    fn end(&self) {
        self.ended.fetch_add(1, Relaxed);
        self.all_ended.wake_all();
    }

    /// Waits on the calling thread, and then for the tasks' memory.
    fn wait(&self, executor: &Executor, out: &mut ResultText<'_>) -> Result {
        let tasks = self.turns.len() as u64;
        block_on(
            self.all_ended
                .wait_until(|| (self.ended.load(Relaxed) == tasks).then_some(())),
        )?;
        executor.drain();
        write!(
            out,
            "events {} tasks {}",
            self.events.load(Relaxed),
            executor.tasks()
        )?;
        Ok(())
    }
}

/// See the [module documentation](self).
pub(crate) fn ring(executor: &Executor, args: &Args<'_>, out: &mut ResultText<'_>) -> Result {
    let tasks: usize = args.parse(1).filter(|&n| n > 0).ok_or(EINVAL)?;
    let rounds: u64 = args.parse(2).ok_or(EINVAL)?;
    let tokens: usize = args.parse(3).ok_or(EINVAL)?;
    let group = Group::new(tasks, |i| u64::from(i < tokens))?;
    for task in 0..tasks {
        let group = group.clone();
        executor.spawn(async move {
            for _ in 0..rounds {
                if let (Some(mine), Some(next)) =
                    (group.turn(task), group.turn(task.wrapping_add(1)))
                {
                    mine.acquire().await;
                    group.happened();
                    next.release();
                }
            }
            group.end();
        })?;
    }
    group.wait(executor, out)
}

/// See the [module documentation](self).
pub(crate) fn timers(executor: &Executor, args: &Args<'_>, out: &mut ResultText<'_>) -> Result {
    let tasks: usize = args.parse(1).filter(|&n| n > 0).ok_or(EINVAL)?;
    let rounds: u64 = args.parse(2).ok_or(EINVAL)?;
    let group = Group::new(tasks, |_| 0)?;
    for task in 0..tasks {
        let group = group.clone();
        let mut timer = Timer::new()?;
        executor.spawn(async move {
            for round in 0..rounds {
                let delay_ms = (task as u64).wrapping_add(round) % 5;
                let (Some(mine), Some(next)) = (group.turn(task), group.turn(task.wrapping_add(1)))
                else {
                    break;
                };
                let asleep = async {
                    timer.sleep(delay_ms as u32).await;
                    next.release();
                };
                // Both wait in one task: its timer, and its neighbour's.
                join2(asleep, mine.acquire()).await;
                group.happened();
            }
            group.end();
        })?;
    }
    group.wait(executor, out)
}

/// Polls `future` twice at most; `false` if it gave up.
async fn impatiently(future: impl Future<Output = ()>) -> bool {
    let mut future = pin!(future);
    let first = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await;
    if first {
        return true;
    }
    yield_now().await;
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}

/// See the [module documentation](self).
pub(crate) fn crowd(executor: &Executor, args: &Args<'_>, out: &mut ResultText<'_>) -> Result {
    let tasks: usize = args.parse(1).filter(|&n| n > 0).ok_or(EINVAL)?;
    let rounds: u64 = args.parse(2).ok_or(EINVAL)?;
    let group = Group::new(tasks, |i| if i == 0 { 2 } else { 0 })?;
    for task in 0..tasks {
        let group = group.clone();
        executor.spawn(async move {
            let Some(permits) = group.turn(0) else { return };
            for round in 0..rounds {
                let patient = (task as u64).wrapping_mul(7).wrapping_add(round) % 4 != 0;
                let got = match patient {
                    true => {
                        permits.acquire().await;
                        true
                    }
                    false => impatiently(permits.acquire()).await,
                };
                if got {
                    if round % 3 == 0 {
                        yield_now().await;
                    }
                    permits.release();
                }
                group.happened();
            }
            group.end();
        })?;
    }
    group.wait(executor, out)?;
    let permits = group.turn(0).map_or(0, |s| *s.permits.lock());
    write!(out, " permits {permits}")?;
    Ok(())
}

/// See the [module documentation](self).
pub(crate) fn naps(executor: &Executor, args: &Args<'_>, out: &mut ResultText<'_>) -> Result {
    let tasks: usize = args.parse(1).filter(|&n| n > 0).ok_or(EINVAL)?;
    let rounds: u64 = args.parse(2).ok_or(EINVAL)?;
    let group = Group::new(tasks, |_| 0)?;
    for _ in 0..tasks {
        let group = group.clone();
        let mut timer = Timer::new()?;
        executor.spawn(async move {
            for _ in 0..rounds {
                // An hour, of which the next sleep must see nothing.
                if !impatiently(timer.sleep(3_600_000)).await {
                    group.happened();
                }
                timer.sleep(1).await;
            }
            // Left running, for the destructor to stop.
            impatiently(timer.sleep(3_600_000)).await;
            group.end();
        })?;
    }
    group.wait(executor, out)
}

/// See the [module documentation](self).
pub(crate) fn late(executor: &Executor, args: &Args<'_>, out: &mut ResultText<'_>) -> Result {
    let tasks: usize = args.parse(1).filter(|&n| n > 0).ok_or(EINVAL)?;
    let group = Group::new(tasks, |_| 0)?;
    let wakers = Arc::new(spin_lock!(Vec::with_capacity(tasks)?)?)?;
    for _ in 0..tasks {
        let (group, wakers) = (group.clone(), wakers.clone());
        executor.spawn(async move {
            let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
            if wakers.lock().push_within_capacity(waker).is_ok() {
                group.happened();
            }
            group.end();
        })?;
    }
    group.wait(executor, out)?;
    let mut woken = 0_usize;
    loop {
        let Some(waker) = wakers.lock().pop() else {
            break;
        };
        waker.wake_by_ref();
        // The task's memory goes with it.
        drop(waker);
        woken = woken.wrapping_add(1);
    }
    write!(out, " woken {woken}")?;
    Ok(())
}
