// SPDX-License-Identifier: GPL-2.0

//! Requests from above and the queue they arrive in.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use super::executor::Slot;
use super::rng::Rng;
use crate::engine::env::{Intake, Operation, RequestError, UserRequest};

/// How a request ended: with its data, which means something for reads.
pub type Outcome = Result<Vec<u8>, RequestError>;

/// A request, and the promise to be told how it ended.
pub struct SimRequest {
    operation: Operation,
    sector: u64,
    bytes: usize,
    fua: bool,
    data: Vec<u8>,
    /// `None` once the request is completed.
    done: Option<Slot<Outcome>>,
    lost: Arc<Mutex<Vec<String>>>,
}

impl UserRequest for SimRequest {
    fn operation(&self) -> Operation {
        self.operation
    }

    fn sector(&self) -> u64 {
        self.sector
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn fua(&self) -> bool {
        self.fua
    }

    fn copy_from_user(&self, dst: &mut [u8]) {
        assert_eq!(self.operation, Operation::Write, "only writes bring data");
        dst.copy_from_slice(&self.data);
    }

    fn copy_to_user(&mut self, src: &[u8]) {
        assert_eq!(self.operation, Operation::Read, "only reads take data");
        self.data.copy_from_slice(src);
    }

    fn complete(mut self, result: Result<(), RequestError>) {
        let data = std::mem::take(&mut self.data);
        if let Some(done) = self.done.take() {
            done.fill(result.map(|()| data));
        }
    }
}

impl Drop for SimRequest {
    fn drop(&mut self) {
        if self.done.take().is_some() {
            let what = format!("{:?} at sector {}", self.operation, self.sector);
            self.lost.lock().expect("no panic").push(what);
        }
    }
}

struct State {
    rng: Rng,
    queue: VecDeque<SimRequest>,
    waiting: Vec<(u64, Waker)>,
    next_waiter: u64,
    closed: bool,
}

/// The queue of requests; clones are the same one.
#[derive(Clone)]
pub struct SimIntake {
    state: Arc<Mutex<State>>,
    lost: Arc<Mutex<Vec<String>>>,
}

impl SimIntake {
    /// An empty queue.
    pub fn new(rng: Rng) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                rng,
                queue: VecDeque::new(),
                waiting: Vec::new(),
                next_waiter: 0,
                closed: false,
            })),
            lost: Arc::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    fn send(
        &self,
        operation: Operation,
        sector: u64,
        bytes: usize,
        fua: bool,
        data: Vec<u8>,
    ) -> Slot<Outcome> {
        let done = Slot::new();
        let request = SimRequest {
            operation,
            sector,
            bytes,
            fua,
            data,
            done: Some(done.clone()),
            lost: Arc::clone(&self.lost),
        };
        let waker = {
            let state = &mut *self.state();
            state.queue.push_back(request);
            state.waker()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        done
    }

    /// Reads `bytes` bytes.
    pub fn read(&self, sector: u64, bytes: usize) -> Slot<Outcome> {
        self.send(Operation::Read, sector, bytes, false, vec![0xcd; bytes])
    }

    /// Writes `data`.
    pub fn write(&self, sector: u64, data: Vec<u8>, fua: bool) -> Slot<Outcome> {
        self.send(Operation::Write, sector, data.len(), fua, data)
    }

    /// Discards `bytes` bytes.
    pub fn discard(&self, sector: u64, bytes: usize, fua: bool) -> Slot<Outcome> {
        self.send(Operation::Discard, sector, bytes, fua, Vec::new())
    }

    /// Flushes.
    pub fn flush(&self) -> Slot<Outcome> {
        self.send(Operation::Flush, 0, 0, false, Vec::new())
    }

    /// Requests that nobody will ever complete.
    pub fn lost(&self) -> Vec<String> {
        self.lost.lock().expect("no panic").clone()
    }
}

impl State {
    /// Some waiter, taken off the list.
    fn waker(&mut self) -> Option<Waker> {
        if self.waiting.is_empty() {
            return None;
        }
        let index = self.rng.index(self.waiting.len());
        Some(self.waiting.swap_remove(index).1)
    }
}

/// Waits for a request.
struct Next<'a> {
    intake: &'a SimIntake,
    key: Option<u64>,
}

impl Future for Next<'_> {
    type Output = Option<SimRequest>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let state = &mut *self.intake.state();
        let key = self.key.take();
        state.waiting.retain(|(waiter, _)| Some(*waiter) != key);
        if let Some(request) = state.queue.pop_front() {
            return Poll::Ready(Some(request));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        let key = state.next_waiter;
        state.next_waiter += 1;
        state.waiting.push((key, cx.waker().clone()));
        self.key = Some(key);
        Poll::Pending
    }
}

impl Intake for SimIntake {
    type Request = SimRequest;

    fn next(&self) -> impl Future<Output = Option<SimRequest>> + Send {
        Next {
            intake: self,
            key: None,
        }
    }

    fn close(&self) {
        let waiting = {
            let mut state = self.state();
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }
}
