// SPDX-License-Identifier: GPL-2.0

//! The meeting point of one operation of a device and one task that waits for it.
//!
//! A [`WakeCell`] is armed, handed to a completion handler, and then polled or abandoned by a
//! future. No lock is taken and nothing waits, so [`WakeCell::complete`] may be called from hard
//! interrupt context. Two states stand for a critical section of a few instructions: the handler
//! taking the waker out, or the future putting one in. Neither side spins on the other's section,
//! whose thread may have been preempted: a poll that meets the handler asks to be polled again.
//!
//! ```text
//!            poll                     complete
//! IDLE ──► BUSY ──► WAITING ──► TAKING ──► DONE ──► IDLE (arm)
//!            │ complete           │          ▲
//!            ├──────► BUSY_DONE ──┼──────────┘ (the future clears its waker first)
//!            │ abandon            │ abandon
//!            └──────► ABANDONED ◄─┘
//!                         └──► IDLE (arm)
//! ```

use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicU8,
    Ordering::{AcqRel, Acquire, Release},
};
use core::task::{Context, Waker};

/// In flight, nobody has asked yet.
const IDLE: u8 = 0;
/// The future is changing the waker.
const BUSY: u8 = 1;
/// In flight, a waker is stored.
const WAITING: u8 = 2;
/// The handler is taking the waker.
const TAKING: u8 = 3;
/// Completed while the future was changing the waker.
const BUSY_DONE: u8 = 4;
/// Completed; the future may take the result.
const DONE: u8 = 5;
/// The future is gone; whoever completes cleans up.
const ABANDONED: u8 = 6;

/// Who has to take care of the operation's resources once it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Owner {
    /// The caller: the other side has left or is through.
    Caller,
    /// The other side, now or when it gets there.
    Other,
}

/// What the future finds when it wants to change the waker.
enum Entry {
    /// It may: the state is [`BUSY`].
    Entered,
    /// The handler is in its section.
    Taking,
    /// The operation is over.
    Over,
}

/// One operation that somebody may wait for, see the [module's documentation](self).
///
/// # Invariants
///
/// `waker` is accessed only by the thread that moved `state` to [`BUSY`] (until it leaves [`BUSY`]
/// or [`BUSY_DONE`]) or to [`TAKING`] (until it leaves that, or [`ABANDONED`] if the future went
/// meanwhile). In every state but those four and [`WAITING`] it is `None`.
pub struct WakeCell {
    state: AtomicU8,
    waker: UnsafeCell<Option<Waker>>,
}

// SAFETY: `waker` is only touched by the one thread that the state machine lets in, see the type's
// invariants, and a `Waker` may be used from any thread.
unsafe impl Sync for WakeCell {}

impl Default for WakeCell {
    fn default() -> Self {
        Self::new()
    }
}

impl WakeCell {
    /// Creates a cell that is armed.
    pub const fn new() -> Self {
        // INVARIANT: no waker in state `IDLE`.
        Self {
            state: AtomicU8::new(IDLE),
            waker: UnsafeCell::new(None),
        }
    }

    fn step(&self, from: u8, to: u8) -> Result<u8, u8> {
        self.state.compare_exchange(from, to, AcqRel, Acquire)
    }

    /// Makes the cell of a finished operation ready for the next one.
    pub fn arm(&self) {
        if self.step(DONE, IDLE).is_err() {
            let _ = self.step(ABANDONED, IDLE);
        }
    }

    /// Enters the section in which the future may change the waker, if it can.
    fn enter(&self) -> Entry {
        loop {
            match self.state.load(Acquire) {
                DONE | ABANDONED => return Entry::Over,
                state @ (IDLE | WAITING) => {
                    if self.step(state, BUSY).is_ok() {
                        return Entry::Entered;
                    }
                }
                _ => return Entry::Taking,
            }
        }
    }

    /// Leaves the section towards `to`. `false`: the operation has ended meanwhile.
    fn leave(&self, to: u8) -> bool {
        if self.step(BUSY, to).is_ok() {
            return true;
        }
        // INVARIANT: the state is `BUSY_DONE`, so the waker is still ours; it goes before the state
        // becomes `DONE`.
        // SAFETY: this thread entered the section and has not left it.
        unsafe { *self.waker.get() = None };
        self.state.store(DONE, Release);
        false
    }

    /// Returns whether the operation is over; if it is not, the task of `cx` is woken when it is.
    ///
    /// All that happened before [`complete`](Self::complete) is then visible to the caller.
    pub fn poll(&self, cx: &Context<'_>) -> bool {
        match self.enter() {
            Entry::Entered => {}
            Entry::Taking => {
                // The waker that is being taken may be that of an earlier poll.
                cx.waker().wake_by_ref();
                return false;
            }
            Entry::Over => return true,
        }
        // SAFETY: between `enter` and `leave` the waker belongs to this thread.
        let waker = unsafe { &mut *self.waker.get() };
        match waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
        !self.leave(WAITING)
    }

    /// Tells that nobody will ask again. [`Owner::Caller`] if the operation was already over.
    pub fn abandon(&self) -> Owner {
        match self.enter() {
            Entry::Entered => {}
            Entry::Taking if self.step(TAKING, ABANDONED).is_ok() => return Owner::Other,
            Entry::Taking | Entry::Over => return Owner::Caller,
        }
        // SAFETY: between `enter` and `leave` the waker belongs to this thread.
        unsafe { *self.waker.get() = None };
        if self.leave(ABANDONED) {
            Owner::Other
        } else {
            Owner::Caller
        }
    }

    /// Tells that the operation is over. Callable from any context. [`Owner::Caller`] if it had
    /// been abandoned.
    ///
    /// With [`Owner::Other`] the cell, and what it is part of, may be gone by the time this
    /// returns.
    pub fn complete(&self) -> Owner {
        loop {
            let state = self.state.load(Acquire);
            let next = match state {
                IDLE => DONE,
                BUSY => BUSY_DONE,
                WAITING => TAKING,
                ABANDONED => return Owner::Caller,
                // Completed twice.
                _ => return Owner::Other,
            };
            if self.step(state, next).is_err() {
                continue;
            }
            if next == TAKING {
                // SAFETY: this thread moved the state to `TAKING`.
                let waker = unsafe { (*self.waker.get()).take() };
                if self.step(TAKING, DONE).is_err() {
                    // Abandoned meanwhile.
                    return Owner::Caller;
                }
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            return Owner::Other;
        }
    }
}
