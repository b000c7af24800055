// SPDX-License-Identifier: GPL-2.0

//! The cell between one operation and one task: who owns what in every order of events, and no lost
//! wake-up under real threads.

#[path = "../../../src/kapi/wake_cell.rs"]
mod wake_cell;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{mpsc, Arc, Barrier};
use std::task::{Context, Wake, Waker};
use std::thread;
use wake_cell::{Owner, WakeCell};

/// Counts how often it was woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn task() -> (Arc<Count>, Waker) {
    let count = Arc::<Count>::default();
    (count.clone(), Waker::from(count))
}

fn poll(cell: &WakeCell, waker: &Waker) -> bool {
    cell.poll(&Context::from_waker(waker))
}

#[test]
fn completed_before_the_first_poll_wakes_nobody() {
    let cell = WakeCell::new();
    let (count, waker) = task();
    assert_eq!(cell.complete(), Owner::Other);
    assert!(poll(&cell, &waker));
    assert_eq!(count.0.load(SeqCst), 0);
}

#[test]
fn a_waiting_task_is_woken_once() {
    let cell = WakeCell::new();
    let (count, waker) = task();
    assert!(!poll(&cell, &waker));
    assert!(!poll(&cell, &waker));
    assert_eq!(cell.complete(), Owner::Other);
    assert_eq!(count.0.load(SeqCst), 1);
    assert!(poll(&cell, &waker));
    assert!(
        poll(&cell, &waker),
        "the result stays until the cell is armed"
    );
}

#[test]
fn the_waker_of_the_last_poll_counts() {
    let cell = WakeCell::new();
    let (first, first_waker) = task();
    let (second, second_waker) = task();
    assert!(!poll(&cell, &first_waker));
    assert!(!poll(&cell, &second_waker));
    drop(first_waker);
    assert_eq!(Arc::strong_count(&first), 1, "the first waker was kept");
    assert_eq!(cell.complete(), Owner::Other);
    assert_eq!((first.0.load(SeqCst), second.0.load(SeqCst)), (0, 1));
}

#[test]
fn abandoning_before_completion_leaves_all_to_the_handler() {
    let cell = WakeCell::new();
    let (count, waker) = task();
    assert!(!poll(&cell, &waker));
    assert_eq!(cell.abandon(), Owner::Other);
    drop(waker);
    assert_eq!(Arc::strong_count(&count), 1, "the waker was kept");
    assert_eq!(cell.complete(), Owner::Caller);
    assert_eq!(count.0.load(SeqCst), 0);
}

#[test]
fn abandoning_after_completion_leaves_all_to_the_future() {
    let cell = WakeCell::new();
    assert_eq!(cell.complete(), Owner::Other);
    assert_eq!(cell.abandon(), Owner::Caller);
}

#[test]
fn an_armed_cell_is_like_new() {
    let cell = WakeCell::new();
    let (count, waker) = task();
    for round in 1..=3 {
        assert!(!poll(&cell, &waker));
        assert_eq!(cell.complete(), Owner::Other);
        assert!(poll(&cell, &waker));
        cell.arm();
        assert_eq!(count.0.load(SeqCst), round);
    }
    assert_eq!(cell.abandon(), Owner::Other);
    assert_eq!(cell.complete(), Owner::Caller);
    cell.arm();
    assert!(!poll(&cell, &waker));
}

/// A task that parks its thread; being woken sends a message, so that a lost wake-up ends in a
/// time-out and not in a hang.
struct Message(mpsc::Sender<()>);

impl Wake for Message {
    fn wake(self: Arc<Self>) {
        // The receiver may be through.
        let _ = self.0.send(());
    }
}

/// Completion races with polling, with a change of waker in between.
#[test]
fn no_wake_up_is_lost_between_threads() {
    for round in 0..20_000 {
        let cell = Arc::new(WakeCell::new());
        let start = Arc::new(Barrier::new(2));
        let handler = thread::spawn({
            let (cell, start) = (cell.clone(), start.clone());
            move || {
                start.wait();
                cell.complete()
            }
        });
        let (sender, receiver) = mpsc::channel();
        start.wait();
        loop {
            // A new waker each time, so that every poll replaces one.
            let waker = Waker::from(Arc::new(Message(sender.clone())));
            if poll(&cell, &waker) {
                break;
            }
            if round % 2 == 0 && poll(&cell, &waker) {
                break;
            }
            let woken = receiver.recv_timeout(std::time::Duration::from_secs(20));
            assert!(woken.is_ok(), "round {round}: the wake-up was lost");
        }
        assert_eq!(handler.join().ok(), Some(Owner::Other));
    }
}

/// Whoever is last, the handler or the dropped future, is told so; never both, never neither.
#[test]
fn abandoning_and_completing_leave_one_owner() {
    for _ in 0..20_000 {
        let cell = Arc::new(WakeCell::new());
        let start = Arc::new(Barrier::new(2));
        let (_, waker) = task();
        assert!(!poll(&cell, &waker));
        let handler = thread::spawn({
            let (cell, start) = (cell.clone(), start.clone());
            move || {
                start.wait();
                cell.complete()
            }
        });
        start.wait();
        let owners = [Some(cell.abandon()), handler.join().ok()];
        let callers = owners.iter().filter(|o| **o == Some(Owner::Caller));
        assert_eq!(callers.count(), 1, "{owners:?}");
    }
}
