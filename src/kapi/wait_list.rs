// SPDX-License-Identifier: GPL-2.0

//! A list of tasks that wait for a condition, first come first served.
//!
//! Needs nothing but `core`, and is built and tested on the host as well; the lock comes from outside ([`LinksLock`]).
//!
//! The list owns nothing: a waiter's [`Node`] lives inside its pinned [`WaitUntil`] future, so waiting allocates
//! nothing. Every field of every node is guarded by the list's lock. That lock is innermost: neither a condition nor a
//! waker runs under it, and no waker is dropped under it. Wake-ups may come from any context the lock allows.
//!
//! # No wake-up is lost
//!
//! A waiter links its node first and evaluates its condition afterwards, so an event is either seen by the condition or
//! finds the node. A [`WaitList::wake_one`] that hits a waiter which then needs no wake-up (its condition had already
//! been met, or its future is dropped) is passed on to the next one.
//!
//! # Nobody starves
//!
//! Where all are woken and one gets what they wait for, the others go back to the places they had: before those who came later.

use core::cell::UnsafeCell;
use core::future::Future;
use core::marker::PhantomPinned;
use core::mem;
use core::pin::Pin;
use core::ptr;
use core::sync::atomic::{
    fence, AtomicBool,
    Ordering::{Relaxed, SeqCst},
};
use core::task::{Context, Poll, Waker};

/// Wakers that are taken off a list at a time.
const WAKERS: usize = 16;

/// The lock around a list's [`Links`].
///
/// # Safety
///
/// Every call on one lock must pass the same `Links`, and no two calls may overlap.
pub unsafe trait LinksLock {
    /// Runs `f` with the lock held.
    fn with<R>(&self, f: impl FnOnce(&mut Links) -> R) -> R;
}

/// Which call took a node off the list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wake {
    One,
    All,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NodeState {
    Unlinked,
    Linked,
    /// Taken off the list, and the waker called.
    Woken(Wake),
}

struct Node {
    previous: *mut Node,
    next: *mut Node,
    /// [`Links::epoch`] when the node was linked.
    epoch: u64,
    /// The place in line: drawn when the node was first linked, and kept over wake-ups in vain. 0: none yet.
    turn: u64,
    state: NodeState,
    waker: Option<Waker>,
}

impl Node {
    const fn new() -> Self {
        Self {
            previous: ptr::null_mut(),
            next: ptr::null_mut(),
            epoch: 0,
            turn: 0,
            state: NodeState::Unlinked,
            waker: None,
        }
    }
}

/// Both ends of a chain of nodes.
///
/// # Invariants
///
/// Both are null, or both lead to live nodes in state `Linked` that are chained through `next` and `previous`.
struct Chain {
    first: *mut Node,
    last: *mut Node,
}

impl Chain {
    const EMPTY: Self = Self {
        first: ptr::null_mut(),
        last: ptr::null_mut(),
    };

    /// Puts `node` behind those whose turn comes before its own.
    ///
    /// # Safety
    ///
    /// `node` is live, in no chain, and stays where it is until it is removed.
    unsafe fn insert(&mut self, node: *mut Node) {
        // SAFETY: `node` is live by the contract, all others by the invariant.
        unsafe {
            let turn = (*node).turn;
            // The place is near one of the ends: near the front after a `wake_one` in vain, at the back for a newcomer, and not far
            // from it after a `wake_all`, when the waiters come back in their order and only newcomers are behind them. Looked for
            // from both ends, since there may be thousands in between, and interrupts are off.
            let (mut previous, mut following) = (self.last, self.first);
            while !previous.is_null() && (*previous).turn > turn {
                // Not null: what `previous` is now, or was, comes after `node`.
                if (*following).turn > turn {
                    previous = (*following).previous;
                    break;
                }
                previous = (*previous).previous;
                following = (*following).next;
            }
            let next = match previous.as_mut() {
                Some(previous) => mem::replace(&mut previous.next, node),
                None => mem::replace(&mut self.first, node),
            };
            match next.as_mut() {
                Some(next) => next.previous = node,
                None => self.last = node,
            }
            (*node).previous = previous;
            (*node).next = next;
        }
    }

    /// # Safety
    ///
    /// `node` is in this chain.
    unsafe fn remove(&mut self, node: *mut Node) {
        // SAFETY: `node` and so its neighbours are live by the invariant.
        unsafe {
            let (previous, next) = ((*node).previous, (*node).next);
            match previous.is_null() {
                true => self.first = next,
                false => (*previous).next = next,
            }
            match next.is_null() {
                true => self.last = previous,
                false => (*next).previous = previous,
            }
        }
    }

    /// Appends all of `other`, which is empty afterwards.
    fn append(&mut self, other: &mut Chain) {
        let other = mem::replace(other, Self::EMPTY);
        if other.first.is_null() {
            return;
        }
        if self.last.is_null() {
            *self = other;
            return;
        }
        // SAFETY: the ends of both chains are live by the invariant.
        unsafe {
            (*self.last).next = other.first;
            (*other.first).previous = self.last;
        }
        self.last = other.last;
    }
}

/// The state of a list, kept by its [`LinksLock`].
///
/// # Invariants
///
/// A linked node is in `queue` if its epoch is the current one, else in `waking`.
pub struct Links {
    /// Waiters by their turns.
    queue: Chain,
    /// Waiters that a [`WaitList::wake_all`] has yet to call.
    waking: Chain,
    epoch: u64,
    /// The last turn that was drawn.
    last_turn: u64,
}

// SAFETY: the pointers lead to nodes whose every field is guarded by the same lock as the `Links`; the wakers in them
// are `Send`.
unsafe impl Send for Links {}

impl Links {
    /// Of a list nobody waits on.
    pub const EMPTY: Self = Self {
        queue: Chain::EMPTY,
        waking: Chain::EMPTY,
        epoch: 0,
        last_turn: 0,
    };

    fn is_empty(&self) -> bool {
        self.queue.first.is_null() && self.waking.first.is_null()
    }

    /// # Safety
    ///
    /// `node` is live, unlinked, belongs to this list and stays where it is until it is unlinked or woken.
    unsafe fn link(&mut self, node: *mut Node, waker: Waker) {
        // SAFETY: by the contract.
        unsafe {
            (*node).state = NodeState::Linked;
            // INVARIANT: the current epoch goes with `queue`.
            (*node).epoch = self.epoch;
            (*node).waker = Some(waker);
            if (*node).turn == 0 {
                // 2^64 do not wrap.
                self.last_turn = self.last_turn.wrapping_add(1);
                (*node).turn = self.last_turn;
            }
            self.queue.insert(node);
        }
    }

    /// # Safety
    ///
    /// `node` is linked into this list.
    unsafe fn unlink(&mut self, node: *mut Node, state: NodeState) -> Option<Waker> {
        // SAFETY: `node` is live while it is linked; the epoch tells its chain by the invariant.
        unsafe {
            let chain = match (*node).epoch == self.epoch {
                true => &mut self.queue,
                false => &mut self.waking,
            };
            chain.remove(node);
            (*node).state = state;
            (*node).waker.take()
        }
    }

    fn take_queued(&mut self) -> Option<Waker> {
        match self.queue.first {
            node if node.is_null() => None,
            // SAFETY: a node in a chain is linked.
            node => unsafe { self.unlink(node, NodeState::Woken(Wake::One)) },
        }
    }

    fn take_waking(&mut self) -> Option<Waker> {
        match self.waking.first {
            node if node.is_null() => None,
            // SAFETY: a node in a chain is linked.
            node => unsafe { self.unlink(node, NodeState::Woken(Wake::All)) },
        }
    }

    /// Takes waiters off `waking`, as many as there is room for. Whether more may be left.
    fn take_wakers(&mut self, wakers: &mut [Option<Waker>]) -> bool {
        for room in wakers {
            *room = self.take_waking();
            if room.is_none() {
                return false;
            }
        }
        true
    }

    /// Moves every waiter from `queue` to `waking`.
    fn start_waking(&mut self) {
        self.waking.append(&mut self.queue);
        // INVARIANT: every linked node is in `waking` now and has an older epoch. 2^64 do not wrap.
        self.epoch = self.epoch.wrapping_add(1);
    }
}

/// A list of waiting tasks, see the [module documentation](self).
pub struct WaitList<L> {
    lock: L,
    /// Whether the list holds anybody. Changed under the lock.
    occupied: AtomicBool,
}

impl<L: LinksLock> WaitList<L> {
    /// A list nobody waits on. `lock` must guard empty [`Links`] of its own.
    pub const fn new(lock: L) -> Self {
        Self {
            lock,
            occupied: AtomicBool::new(false),
        }
    }

    /// Runs `f` with the lock held.
    fn with<R>(&self, f: impl FnOnce(&mut Links) -> R) -> R {
        self.lock.with(|links| {
            let result = f(links);
            self.occupied.store(!links.is_empty(), Relaxed);
            result
        })
    }

    /// Whether an event that has just happened may have somebody to wake.
    fn may_have_waiters(&self) -> bool {
        fence(SeqCst);
        self.occupied.load(Relaxed)
    }

    /// Waits until `condition` returns something, and returns that.
    ///
    /// The condition is evaluated at every poll, sometimes twice, and never under the list's lock.
    pub fn wait_until<T, F>(&self, condition: F) -> WaitUntil<'_, L, F>
    where
        F: FnMut() -> Option<T>,
    {
        WaitUntil {
            list: self,
            condition,
            node: UnsafeCell::new(Node::new()),
            registered: false,
            _pinned: PhantomPinned,
        }
    }

    /// Wakes the longest waiting task, if there is one.
    pub fn wake_one(&self) {
        if !self.may_have_waiters() {
            return;
        }
        if let Some(waker) = self.with(Links::take_queued) {
            waker.wake();
        }
    }

    /// Wakes every task that waits now.
    pub fn wake_all(&self) {
        if !self.may_have_waiters() {
            return;
        }
        let mut wakers = [const { None }; WAKERS];
        let mut more = self.with(|links| {
            links.start_waking();
            links.take_wakers(&mut wakers)
        });
        loop {
            for waker in wakers.iter_mut().filter_map(Option::take) {
                waker.wake();
            }
            if !more {
                return;
            }
            more = self.with(|links| links.take_wakers(&mut wakers));
        }
    }

    /// Whether nobody waits (which may change at any time).
    pub fn is_empty(&self) -> bool {
        self.lock.with(|links| links.is_empty())
    }
}

/// The future of [`WaitList::wait_until`].
pub struct WaitUntil<'a, L: LinksLock, F> {
    list: &'a WaitList<L>,
    condition: F,
    /// Guarded by the list's lock.
    node: UnsafeCell<Node>,
    /// Whether `node` may be linked or woken. While it is false, nobody else knows the node.
    registered: bool,
    _pinned: PhantomPinned,
}

// SAFETY: the node is only touched under the list's lock, its waker is `Send`, and the list is shared.
unsafe impl<L: LinksLock + Sync, F: Send> Send for WaitUntil<'_, L, F> {}

impl<L: LinksLock, F> WaitUntil<'_, L, F> {
    /// Links the node.
    fn register(&mut self, waker: &Waker) {
        let (node, waker) = (self.node.get(), waker.clone());
        self.list.with(|links| {
            // SAFETY: `registered` is false, so the node is unlinked; it is pinned with the future, and `leave` runs
            // before it goes.
            unsafe { links.link(node, waker) }
        });
        // The condition that is evaluated next sees what happened before a waker found nobody.
        fence(SeqCst);
        self.registered = true;
    }

    /// At a new poll: takes note of a wake-up, or makes sure that the next one reaches the present waker.
    fn refresh(&mut self, waker: &Waker) {
        let (node, waker) = (self.node.get(), waker.clone());
        // The old waker is returned to be dropped outside the lock.
        let (woken, _old) = self.list.with(|_links| {
            // SAFETY: the node is ours, and the lock guards it.
            let node = unsafe { &mut *node };
            match node.state {
                NodeState::Linked => (false, node.waker.replace(waker)),
                NodeState::Woken(_) | NodeState::Unlinked => {
                    node.state = NodeState::Unlinked;
                    (true, Some(waker))
                }
            }
        });
        if woken {
            self.registered = false;
        }
    }

    /// Unlinks the node. A `wake_one` that hit it although nobody waits here any more goes to the next waiter.
    fn leave(&mut self) {
        if !mem::replace(&mut self.registered, false) {
            return;
        }
        let node = self.node.get();
        let (pass_on, _waker) = self.list.with(|links| {
            // SAFETY: the node is ours, and the lock guards it.
            match unsafe { (*node).state } {
                // SAFETY: it is linked.
                NodeState::Linked => (false, unsafe { links.unlink(node, NodeState::Unlinked) }),
                NodeState::Woken(wake) => {
                    // SAFETY: as above.
                    unsafe { (*node).state = NodeState::Unlinked };
                    (wake == Wake::One, None)
                }
                NodeState::Unlinked => (false, None),
            }
        });
        if pass_on {
            self.list.wake_one();
        }
    }
}

impl<L: LinksLock, T, F: FnMut() -> Option<T>> Future for WaitUntil<'_, L, F> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // SAFETY: nothing is moved out; the condition is not pinned structurally.
        let this = unsafe { self.get_unchecked_mut() };
        if this.registered {
            this.refresh(cx.waker());
        }
        if let Some(value) = (this.condition)() {
            this.leave();
            return Poll::Ready(value);
        }
        if !this.registered {
            this.register(cx.waker());
            // An event between the evaluation above and the registration woke nobody.
            if let Some(value) = (this.condition)() {
                this.leave();
                return Poll::Ready(value);
            }
        }
        Poll::Pending
    }
}

impl<L: LinksLock, F> Drop for WaitUntil<'_, L, F> {
    fn drop(&mut self) {
        self.leave();
    }
}
