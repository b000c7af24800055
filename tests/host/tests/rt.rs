// SPDX-License-Identifier: GPL-2.0

//! The runtime surface, as far as the host can show it.

use rvdo_host::rt::{self, AllocError, Arc, Page, PagePair, SpinLock, Vec};
use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A waker that counts.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn counting() -> (std::sync::Arc<Count>, Waker) {
    let count = std::sync::Arc::new(Count::default());
    (count.clone(), Waker::from(count))
}

#[test]
fn crc_continues_without_inversion() {
    // The check value of CRC-32 is defined with both inversions.
    assert_eq!(!rt::crc32_le(!0, b"123456789"), 0xcbf4_3926);
    // lib/crc32 is linear: a zero seed stays zero over zeros.
    assert_eq!(rt::crc32_le(0, &[0; 64]), 0);
    let (head, tail) = b"0123456789abcdef".split_at(5);
    assert_eq!(
        rt::crc32_le(rt::crc32_le(7, head), tail),
        rt::crc32_le(7, b"0123456789abcdef")
    );
}

#[test]
fn push_within_capacity_never_grows() {
    let mut vec = Vec::with_capacity(2).unwrap();
    let room = vec.capacity();
    rt::host::alloc::forbidden(|| {
        for i in 0..room {
            vec.push_within_capacity(i).unwrap();
        }
        assert_eq!(vec.push_within_capacity(99), Err(99));
    });
    assert_eq!(vec.len(), room);
    assert_eq!(vec.swap_remove(room), None);
    assert_eq!(vec.swap_remove(0), Some(0));
    assert_eq!(vec.first(), Some(&(room - 1)));
}

#[test]
fn from_fn_hands_errors_on() {
    let made = Vec::from_fn(3, |i| Ok::<_, AllocError>(i * i)).unwrap();
    assert_eq!(&made[..], &[0, 1, 4]);
    let failed = Vec::from_fn(3, |i| if i == 1 { Err(AllocError) } else { Ok(i) });
    assert_eq!(failed.map(|_| ()), Err(AllocError));
}

#[test]
fn allocations_can_be_made_to_fail() {
    let result = rt::host::alloc::failing_after(1, || {
        let first = Arc::new(1).map(|_| ());
        let second = Page::new().map(|_| ());
        (first, second)
    });
    assert_eq!(result, (Ok(()), Err(AllocError)));
    assert!(Page::new().is_ok());
    let panicked = catch_unwind(|| rt::host::alloc::forbidden(|| Vec::<u8>::with_capacity(1)));
    assert!(panicked.is_err());
    // The rule ended with the closure, although that panicked.
    assert!(Vec::<u8>::with_capacity(1).is_ok());
}

#[test]
fn pages_are_aligned_and_zeroed() {
    let pages: std::vec::Vec<_> = (0..5).map(|_| Page::new().unwrap()).collect();
    for page in &pages {
        assert_eq!(page.as_ptr().align_offset(4096), 0);
        assert!(page.iter().all(|&b| b == 0));
    }
    let mut pair = PagePair::new().unwrap();
    assert_eq!(pair.as_ptr().align_offset(4096), 0);
    pair[8191] = 1;
    assert_eq!(pair.iter().map(|&b| usize::from(b)).sum::<usize>(), 1);
}

#[test]
fn a_lock_taken_twice_panics() {
    let lock = SpinLock::new(0).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _outer = lock.lock();
        let _inner = lock.lock();
    }));
    assert!(panicked.is_err());
    // It is free again, and not poisoned.
    *lock.lock() += 1;
    assert_eq!(*lock.lock(), 1);
}

#[test]
fn log_lines_are_captured_with_their_level() {
    let ((), lines) = rt::host::log::captured(|| {
        rt::host::log::line("warn", format_args!("slab {} is odd", 7));
    });
    assert_eq!(lines, ["warn: slab 7 is odd"]);
}

#[test]
fn yield_now_is_pending_once() {
    let (count, waker) = counting();
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(rt::yield_now());
    assert!(future.as_mut().poll(&mut cx).is_pending());
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert!(future.as_mut().poll(&mut cx).is_ready());
}

#[test]
fn join2_waits_for_both_and_polls_neither_again() {
    struct Countdown(usize, usize);
    impl Future for Countdown {
        type Output = usize;
        fn poll(mut self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<usize> {
            self.1 += 1;
            assert!(self.1 <= self.0, "polled after it was ready");
            if self.1 == self.0 {
                Poll::Ready(self.0)
            } else {
                Poll::Pending
            }
        }
    }
    let (_count, waker) = counting();
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(rt::join2(Countdown(1, 0), Countdown(3, 0)));
    assert!(future.as_mut().poll(&mut cx).is_pending());
    assert!(future.as_mut().poll(&mut cx).is_pending());
    assert_eq!(future.as_mut().poll(&mut cx), Poll::Ready((1, 3)));
}
