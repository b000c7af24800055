// SPDX-License-Identifier: GPL-2.0

//! A single-threaded executor whose every choice is made by the seed.
//!
//! Time is a counter. One step lets time go on by one, runs the events that have become due (I/O
//! and codec completions) and then polls *one* ready task, picked at random. If no task is ready,
//! time jumps to the next event. If there is no event either, nothing can ever happen again: a
//! deadlock, reported with the tasks that are stuck.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use super::rng::Rng;

type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;
type Action = Box<dyn FnOnce() + Send>;

/// The task that [`Executor::run`] was given.
const DRIVER: usize = usize::MAX;

/// Why a run ended without its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Nothing is ready and nothing is under way: these tasks wait forever.
    Deadlock(Vec<String>),
    /// More steps were taken than the run was allowed: tasks keep each other busy.
    Livelock(Vec<String>),
    /// The condition that was to end the run has become true.
    Interrupted,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, tasks) = match self {
            Stop::Deadlock(tasks) => ("deadlock; stuck tasks", tasks),
            Stop::Livelock(tasks) => ("no end in sight; living tasks", tasks),
            Stop::Interrupted => return f.write_str("interrupted"),
        };
        let mut count = BTreeMap::<&str, usize>::new();
        for task in tasks {
            *count.entry(task).or_default() += 1;
        }
        write!(f, "{what}:")?;
        count
            .iter()
            .try_for_each(|(task, count)| write!(f, "\n    {count:>5} x {task}"))
    }
}

/// Tasks that have been woken, shared with the wakers.
#[derive(Default)]
struct Ready(Mutex<Vec<usize>>);

struct TaskWaker {
    task: usize,
    queued: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.ready.0.lock().expect("no panic").push(self.task);
        }
    }
}

struct Task {
    name: &'static str,
    /// `None` while the task is being polled.
    future: Option<TaskFuture>,
    waker: Arc<TaskWaker>,
}

struct State {
    rng: Rng,
    now: u64,
    tasks: HashMap<usize, Task>,
    next_task: usize,
    due: BinaryHeap<Reverse<(u64, u64)>>,
    actions: HashMap<u64, Action>,
    next_event: u64,
}

struct Shared {
    ready: Arc<Ready>,
    state: Mutex<State>,
}

/// Starts tasks and events; a cheap handle that parts of the simulated world keep.
#[derive(Clone)]
pub struct Clock {
    shared: Arc<Shared>,
}

impl Clock {
    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("no panic")
    }

    /// The time now.
    pub fn now(&self) -> u64 {
        self.state().now
    }

    /// Runs `action` when `delay` steps have gone by.
    pub fn after(&self, delay: u64, action: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        let event = state.next_event;
        state.next_event += 1;
        let due = state.now + delay.max(1);
        state.due.push(Reverse((due, event)));
        state.actions.insert(event, Box::new(action));
    }

    /// Starts a task, which is known by the type of its future.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(&self, future: F) {
        let mut state = self.state();
        let id = state.next_task;
        state.next_task += 1;
        let waker = Arc::new(TaskWaker {
            task: id,
            queued: AtomicBool::new(false),
            ready: Arc::clone(&self.shared.ready),
        });
        waker.wake_by_ref();
        state.tasks.insert(
            id,
            Task {
                name: std::any::type_name::<F>(),
                future: Some(Box::pin(future)),
                waker,
            },
        );
    }

    /// Waits for `delay` steps.
    pub fn sleep(&self, delay: u64) -> impl Future<Output = ()> + Send + use<> {
        let slot = Slot::new();
        let filler = slot.clone();
        self.after(delay, move || filler.fill(()));
        slot
    }
}

/// A value that an event will provide.
pub struct Slot<T> {
    inner: Arc<Mutex<SlotState<T>>>,
}

struct SlotState<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<T> Slot<T> {
    /// A slot that is empty yet.
    pub fn new() -> Self {
        Self {
            inner: Arc::new(Mutex::new(SlotState {
                value: None,
                waker: None,
            })),
        }
    }

    /// Provides the value.
    pub fn fill(&self, value: T) {
        let waker = {
            let mut state = self.inner.lock().expect("no panic");
            state.value = Some(value);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Future for Slot<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = self.inner.lock().expect("no panic");
        match state.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The executor itself.
pub struct Executor {
    clock: Clock,
    steps: u64,
    /// Steps after which a run counts as endless.
    pub steps_max: u64,
}

impl Executor {
    /// An executor without tasks.
    pub fn new(rng: Rng) -> Self {
        let shared = Arc::new(Shared {
            ready: Arc::new(Ready::default()),
            state: Mutex::new(State {
                rng,
                now: 0,
                tasks: HashMap::new(),
                next_task: 0,
                due: BinaryHeap::new(),
                actions: HashMap::new(),
                next_event: 0,
            }),
        });
        Self {
            clock: Clock { shared },
            steps: 0,
            steps_max: u64::MAX,
        }
    }

    /// The handle to start tasks and events with.
    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Living tasks.
    pub fn tasks(&self) -> usize {
        self.clock.state().tasks.len()
    }

    /// Runs everything until `driver` is done.
    pub fn run<T>(&mut self, driver: impl Future<Output = T>) -> Result<T, Stop> {
        self.run_until(driver, || false)
    }

    /// Runs everything until `driver` is done or `interrupt` says so; that is asked once a step.
    pub fn run_until<T>(
        &mut self,
        driver: impl Future<Output = T>,
        mut interrupt: impl FnMut() -> bool,
    ) -> Result<T, Stop> {
        let mut driver = std::pin::pin!(driver);
        let driver_waker = Arc::new(TaskWaker {
            task: DRIVER,
            queued: AtomicBool::new(false),
            ready: Arc::clone(&self.clock.shared.ready),
        });
        driver_waker.wake_by_ref();
        let limit = self.steps.saturating_add(self.steps_max);
        loop {
            if interrupt() {
                self.forget_driver();
                return Err(Stop::Interrupted);
            }
            match self.step() {
                Some(DRIVER) => {
                    driver_waker.queued.store(false, Ordering::Release);
                    let waker = Waker::from(Arc::clone(&driver_waker));
                    if let Poll::Ready(value) =
                        driver.as_mut().poll(&mut Context::from_waker(&waker))
                    {
                        self.forget_driver();
                        return Ok(value);
                    }
                }
                Some(task) => self.poll(task),
                None => return Err(Stop::Deadlock(self.names())),
            }
            self.steps += 1;
            if self.steps >= limit {
                self.forget_driver();
                return Err(Stop::Livelock(self.names()));
            }
        }
    }

    /// Runs everything until nothing can happen any more; that is no error here.
    pub fn run_until_idle(&mut self) {
        while let Some(task) = self.step() {
            self.poll(task);
            self.steps += 1;
        }
    }

    /// Stops everything at once: a power failure. Tasks and events vanish.
    pub fn halt(&mut self) {
        loop {
            // Dropping a task may wake others, start events or even tasks: not under the lock.
            let (tasks, actions) = {
                let mut state = self.clock.state();
                state.due.clear();
                let tasks: Vec<Task> = state.tasks.drain().map(|(_, task)| task).collect();
                let actions: Vec<Action> =
                    state.actions.drain().map(|(_, action)| action).collect();
                (tasks, actions)
            };
            if tasks.is_empty() && actions.is_empty() {
                break;
            }
            drop(actions);
            drop(tasks);
        }
        self.clock.shared.ready.0.lock().expect("no panic").clear();
    }

    /// Lets time go on and picks the task to run. `None` if nothing can happen any more.
    fn step(&mut self) -> Option<usize> {
        loop {
            let due = {
                let mut state = self.clock.state();
                state.now += 1;
                let now = state.now;
                match state.due.peek() {
                    Some(Reverse((due, _))) if *due <= now => {
                        let Reverse((_, event)) = state.due.pop().expect("just seen");
                        // Time does not go on while several events are due.
                        state.now -= 1;
                        state.actions.remove(&event)
                    }
                    _ => None,
                }
            };
            if let Some(action) = due {
                action();
                continue;
            }
            let mut state = self.clock.state();
            let mut ready = self.clock.shared.ready.0.lock().expect("no panic");
            if !ready.is_empty() {
                let index = state.rng.index(ready.len());
                return Some(ready.swap_remove(index));
            }
            let Reverse((due, _)) = state.due.peek()?;
            let due = *due;
            state.now = state.now.max(due - 1);
        }
    }

    fn poll(&mut self, id: usize) {
        let (mut future, waker) = {
            let mut state = self.clock.state();
            // A task that has ended may still be woken.
            let Some(task) = state.tasks.get_mut(&id) else {
                return;
            };
            let Some(future) = task.future.take() else {
                return;
            };
            (future, Arc::clone(&task.waker))
        };
        waker.queued.store(false, Ordering::Release);
        let done = future
            .as_mut()
            .poll(&mut Context::from_waker(&Waker::from(waker)))
            .is_ready();
        let mut state = self.clock.state();
        if done {
            let task = state.tasks.remove(&id);
            drop(state);
            drop(future);
            drop(task);
        } else if let Some(task) = state.tasks.get_mut(&id) {
            task.future = Some(future);
        }
    }

    fn forget_driver(&self) {
        let mut ready = self.clock.shared.ready.0.lock().expect("no panic");
        ready.retain(|task| *task != DRIVER);
    }

    fn names(&self) -> Vec<String> {
        let state = self.clock.state();
        let mut tasks: Vec<_> = state.tasks.iter().collect();
        tasks.sort_by_key(|(id, _)| **id);
        tasks
            .iter()
            .map(|(_, task)| task.name.to_string())
            .collect()
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.halt();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(seed: u64) -> Vec<usize> {
        let mut executor = Executor::new(Rng::new(seed));
        let log = Arc::new(Mutex::new(Vec::new()));
        for task in 0..4 {
            let (log, clock) = (Arc::clone(&log), executor.clock());
            executor.clock().spawn(async move {
                for _ in 0..4 {
                    log.lock().unwrap().push(task);
                    clock.sleep(3).await;
                }
            });
        }
        executor.run_until_idle();
        Arc::try_unwrap(log).unwrap().into_inner().unwrap()
    }

    #[test]
    fn the_seed_decides_the_order_of_tasks() {
        assert_eq!(order(1), order(1));
        assert!((2..10).any(|seed| order(seed) != order(1)));
    }

    #[test]
    fn a_driver_that_can_never_end_is_a_deadlock() {
        let mut executor = Executor::new(Rng::new(1));
        executor.clock().spawn(std::future::pending::<()>());
        let stop = executor.run(std::future::pending::<()>()).unwrap_err();
        assert!(
            matches!(&stop, Stop::Deadlock(tasks) if tasks.len() == 1),
            "{stop}"
        );
    }

    #[test]
    fn a_run_without_end_is_a_livelock() {
        let mut executor = Executor::new(Rng::new(1));
        executor.steps_max = 1000;
        let clock = executor.clock();
        let stop = executor.run(async move {
            loop {
                clock.sleep(1).await;
            }
        });
        assert!(matches!(stop, Err::<(), _>(Stop::Livelock(_))));
    }

    #[test]
    fn time_jumps_over_idle_stretches() {
        let mut executor = Executor::new(Rng::new(1));
        let clock = executor.clock();
        let now = executor
            .run(async move {
                clock.sleep(1_000_000).await;
                clock.now()
            })
            .unwrap();
        assert!(now >= 1_000_000 && executor.steps() < 10);
    }

    #[test]
    fn a_halt_drops_every_task_once() {
        struct Flag(Arc<Mutex<u32>>);
        impl Drop for Flag {
            fn drop(&mut self) {
                *self.0.lock().unwrap() += 1;
            }
        }
        let dropped = Arc::new(Mutex::new(0));
        let mut executor = Executor::new(Rng::new(1));
        for _ in 0..3 {
            let flag = Flag(Arc::clone(&dropped));
            executor.clock().spawn(async move {
                std::future::pending::<()>().await;
                drop(flag);
            });
        }
        executor.run_until_idle();
        assert_eq!(*dropped.lock().unwrap(), 0);
        executor.halt();
        assert_eq!((*dropped.lock().unwrap(), executor.tasks()), (3, 0));
    }
}
