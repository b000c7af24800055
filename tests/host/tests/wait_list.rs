// SPDX-License-Identifier: GPL-2.0

//! The wait list: order, hand-over, cancellation, and no lost wake-up under random schedules and real threads.

use rand_chacha::rand_core::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rvdo_host::rt::{SpinLock, WaitList};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

/// Remembers that it was woken.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A future and whether its waker was called since the last poll.
struct Waiter<'a> {
    flag: Arc<Flag>,
    future: Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
}

impl<'a> Waiter<'a> {
    fn new(future: impl Future<Output = ()> + Send + 'a) -> Self {
        Self {
            flag: Arc::default(),
            future: Box::pin(future),
        }
    }

    fn poll(&mut self) -> bool {
        self.flag.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(self.flag.clone());
        self.future
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
    }

    fn woken(&self) -> bool {
        self.flag.0.load(Ordering::SeqCst)
    }
}

/// A counting semaphore, the way the engine makes one.
struct Semaphore {
    permits: SpinLock<usize>,
    waiters: WaitList,
}

impl Semaphore {
    fn new(permits: usize) -> Self {
        Self {
            permits: SpinLock::new(permits).unwrap(),
            waiters: WaitList::new().unwrap(),
        }
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
        *self.permits.lock() += 1;
        self.waiters.wake_one();
    }
}

#[test]
fn waiters_are_woken_in_order() {
    let gate = Semaphore::new(0);
    let mut waiters: Vec<_> = (0..4).map(|_| Waiter::new(gate.acquire())).collect();
    for waiter in &mut waiters {
        assert!(!waiter.poll());
    }
    for turn in 0..4 {
        gate.release();
        let woken: Vec<_> = waiters.iter().map(Waiter::woken).collect();
        assert_eq!(woken.iter().filter(|&&w| w).count(), 1);
        assert!(woken[turn]);
        assert!(waiters[turn].poll());
    }
}

#[test]
fn a_satisfied_condition_needs_no_wake_up() {
    let gate = Semaphore::new(1);
    assert!(Waiter::new(gate.acquire()).poll());
    assert!(gate.waiters.is_empty());
}

/// Queues its task, as an executor does.
struct Queued {
    client: usize,
    ready: Arc<Mutex<VecDeque<usize>>>,
}

impl Wake for Queued {
    fn wake(self: Arc<Self>) {
        self.ready.lock().unwrap().push_back(self.client);
    }
}

/// A lock that everybody is woken for, as where waiters for different things share a list. Each of the clients comes back as
/// soon as it had the lock.
#[test]
fn nobody_starves_where_all_are_woken() {
    const CLIENTS: usize = 6;
    let gate = Semaphore::new(0);
    let ready = Arc::new(Mutex::new(VecDeque::from_iter(0..CLIENTS)));
    let mut futures: Vec<_> = (0..CLIENTS).map(|_| Box::pin(gate.acquire())).collect();
    let mut served = Vec::new();
    while served.len() < 5 * CLIENTS {
        let Some(client) = ready.lock().unwrap().pop_front() else {
            *gate.permits.lock() += 1;
            gate.waiters.wake_all();
            continue;
        };
        let waker = Waker::from(Arc::new(Queued {
            client,
            ready: ready.clone(),
        }));
        let mut cx = Context::from_waker(&waker);
        if futures[client].as_mut().poll(&mut cx).is_ready() {
            served.push(client);
            futures[client] = Box::pin(gate.acquire());
            ready.lock().unwrap().push_back(client);
        }
    }
    for (round, clients) in served.chunks(CLIENTS).enumerate() {
        assert_eq!(clients, [0, 1, 2, 3, 4, 5], "round {round}: {served:?}");
    }
}

#[test]
fn a_wake_up_in_vain_keeps_the_turn() {
    let gate = Semaphore::new(0);
    let mut first = Waiter::new(gate.acquire());
    let mut second = Waiter::new(gate.acquire());
    assert!(!first.poll() && !second.poll());
    gate.release();
    assert!(first.woken());
    // Somebody barges in.
    assert!(Waiter::new(gate.acquire()).poll());
    assert!(!first.poll());
    gate.release();
    assert!(first.woken() && !second.woken());
}

/// However many are woken in vain, and in whatever order they come back among newcomers.
#[test]
fn wake_ups_in_vain_keep_the_order() {
    for seed in 0..200 {
        println!("seed {seed}");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let gate = Semaphore::new(0);
        let mut waiters: Vec<_> = (0..40).map(|_| Waiter::new(gate.acquire())).collect();
        for waiter in &mut waiters[..30] {
            assert!(!waiter.poll());
        }
        let mut back: Vec<usize> = (0..rng.next_u32() as usize % 30).collect();
        for _ in &back {
            gate.release();
            assert!(gate.try_acquire().is_some(), "somebody else is faster");
        }
        for place in (1..back.len()).rev() {
            back.swap(place, rng.next_u32() as usize % (place + 1));
        }
        let mut newcomers = 30..40;
        while !back.is_empty() || !newcomers.is_empty() {
            let next = match rng.next_u32() % 2 {
                0 => back.pop(),
                _ => newcomers.next(),
            };
            if let Some(waiter) = next {
                assert!(!waiters[waiter].poll());
            }
        }
        for waiter in &mut waiters {
            gate.release();
            assert!(waiter.woken() && waiter.poll());
        }
    }
}

#[test]
fn a_dropped_waiter_passes_its_wake_up_on() {
    let gate = Semaphore::new(0);
    let mut first = Waiter::new(gate.acquire());
    let mut second = Waiter::new(gate.acquire());
    assert!(!first.poll() && !second.poll());
    gate.release();
    assert!(first.woken() && !second.woken());
    drop(first);
    assert!(second.woken());
    assert!(second.poll());
}

#[test]
fn a_dropped_waiter_leaves_the_list() {
    let gate = Semaphore::new(0);
    let mut waiters: Vec<_> = (0..3).map(|_| Waiter::new(gate.acquire())).collect();
    for waiter in &mut waiters {
        assert!(!waiter.poll());
    }
    waiters.remove(1);
    waiters.remove(0);
    gate.release();
    assert!(waiters[0].woken());
    waiters.clear();
    assert!(gate.waiters.is_empty());
}

#[test]
fn a_wake_up_nobody_needs_any_more_is_passed_on() {
    let gate = Semaphore::new(0);
    let list = &gate.waiters;
    let hit = AtomicBool::new(false);
    // Its condition is met without the wake-up which arrives while it is evaluated.
    let mut first =
        Waiter::new(list.wait_until(|| hit.load(Ordering::SeqCst).then(|| list.wake_one())));
    let mut second = Waiter::new(gate.acquire());
    assert!(!first.poll() && !second.poll());
    hit.store(true, Ordering::SeqCst);
    assert!(first.poll());
    assert!(second.woken());
}

#[test]
fn wake_all_wakes_those_who_wait_now() {
    let gate = Semaphore::new(0);
    let mut waiters: Vec<_> = (0..100).map(|_| Waiter::new(gate.acquire())).collect();
    let mut late = Waiter::new(gate.acquire());
    for waiter in &mut waiters {
        assert!(!waiter.poll());
    }
    gate.waiters.wake_all();
    assert!(waiters.iter().all(Waiter::woken));
    assert!(!late.poll());
    assert!(!late.woken());
    // Each goes back to the list, before the late one.
    for waiter in &mut waiters {
        assert!(!waiter.poll());
    }
    gate.release();
    assert!(!late.woken());
    assert_eq!(waiters.iter().filter(|w| w.woken()).count(), 1);
}

#[test]
fn the_latest_waker_is_the_one_called() {
    let gate = Semaphore::new(0);
    let mut waiter = Waiter::new(gate.acquire());
    assert!(!waiter.poll());
    let old = std::mem::take(&mut waiter.flag);
    assert!(!waiter.poll());
    gate.release();
    assert!(waiter.woken());
    assert!(!old.0.load(Ordering::SeqCst));
}

/// Under any schedule of polls, releases, thefts and cancellations: while a permit is free and somebody waits,
/// somebody has been woken.
#[test]
fn no_wake_up_is_lost_under_random_schedules() {
    for seed in 0..2_000 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let gate = Semaphore::new(0);
        let mut waiters: Vec<Waiter<'_>> = Vec::new();
        for step in 0..120 {
            let pick = rng.next_u32() as usize;
            match rng.next_u32() % 10 {
                0..=2 => {
                    let mut waiter = Waiter::new(gate.acquire());
                    if !waiter.poll() {
                        waiters.push(waiter);
                    }
                }
                3..=5 if !waiters.is_empty() => {
                    let i = pick % waiters.len();
                    if waiters[i].poll() {
                        waiters.remove(i);
                    }
                }
                6 if !waiters.is_empty() => drop(waiters.remove(pick % waiters.len())),
                7 => gate.waiters.wake_all(),
                8 => drop(gate.try_acquire()),
                _ => gate.release(),
            }
            let free = *gate.permits.lock();
            let asleep = waiters.iter().filter(|w| !w.woken()).count();
            let woken = waiters.len() - asleep;
            assert!(
                free == 0 || asleep == 0 || woken > 0,
                "seed {seed} step {step}: {free} free, {asleep} asleep and nobody woken"
            );
        }
    }
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls on this thread, up to `polls` times; `None` if it was still pending then.
fn block_on<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    for poll in 0..polls {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return Some(value);
        }
        if poll + 1 < polls {
            thread::park();
        }
    }
    None
}

/// Real threads, with waiters that give up: each permit comes back, nobody sleeps for ever, and the limit holds.
#[test]
fn threads_share_permits_and_lose_none() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 5_000;
    const PERMITS: usize = 2;
    let gate = Semaphore::new(PERMITS);
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        for t in 0..THREADS {
            let (gate, inside) = (&gate, &inside);
            scope.spawn(move || {
                let mut rng = ChaCha8Rng::seed_from_u64(t as u64);
                for _ in 0..ROUNDS {
                    // One in four gives up after its first poll, woken or not.
                    let polls = if rng.next_u32() % 4 == 0 {
                        1
                    } else {
                        usize::MAX
                    };
                    if block_on(gate.acquire(), polls).is_some() {
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < PERMITS);
                        if rng.next_u32() % 8 == 0 {
                            thread::yield_now();
                        }
                        inside.fetch_sub(1, Ordering::SeqCst);
                        gate.release();
                    }
                    if rng.next_u32() % 64 == 0 {
                        gate.waiters.wake_all();
                    }
                }
            });
        }
    });
    assert_eq!(*gate.permits.lock(), PERMITS);
    assert!(gate.waiters.is_empty());
}

/// Two threads pass a token to and fro through two lists: one lost wake-up and the test never ends.
#[test]
fn ping_pong() {
    let turns = [Semaphore::new(1), Semaphore::new(0)];
    thread::scope(|scope| {
        for me in 0..2 {
            let turns = &turns;
            scope.spawn(move || {
                for _ in 0..20_000 {
                    block_on(turns[me].acquire(), usize::MAX);
                    turns[1 - me].release();
                }
            });
        }
    });
    assert_eq!(*turns[0].permits.lock(), 1);
}
