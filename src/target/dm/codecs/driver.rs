// SPDX-License-Identifier: GPL-2.0

//! One compression driver in use: its requests, its figures, and how far it can be trusted at the moment.
//!
//! A driver that computes on the CPU works on the caller's pages. One that calls back works on pages of its own, of which there is a
//! fixed number: so a caller that has waited long enough can go on with its data while the driver still has the copy. The pages of
//! a call that was given up are used again when the driver answers after all; a driver that never answers uses up its pages, and is
//! not asked any more then. The lock of the pages is held to take or give back a set; the pool's nests inside it.

use core::future::{poll_fn, Future};
use core::ops::Range;
use core::pin::pin;
use core::task::Poll;

use kernel::prelude::*;
use kernel::str::CString;
use kernel::time::{Instant, Monotonic};

use crate::engine::format::StreamFormat;
use crate::kapi::acomp::{Acomp, Implementations};
use crate::kapi::acomp_pool::AcompPool;
use crate::kapi::lz4_fast;
use crate::kapi::timer::Timer;
use crate::rt::{self, spin_lock, Page, PagePair, SpinLock, PAGE_BYTES};
use crate::target::back_off::BackOff;
use crate::target::compression_type::ACCELERATED_LZ4;
use crate::target::driver_list::Candidate;
use crate::target::figures::Figures;
use crate::target::self_test;

/// Requests of a driver that computes on the CPU: it is through before another can be made there.
const SYNCHRONOUS_REQUESTS: usize = 256;
/// Requests, with pages, of a driver that calls back. What comes on top of them is left to software.
const ASYNCHRONOUS_REQUESTS: usize = 256;
/// How long to wait for an answer.
const PATIENCE_MS: u32 = 3000;
/// After so many results in a row that do not fit, and again after as many, software is asked whether the data is to blame.
const SUSPICIOUS: u32 = 8;

/// What a driver works on while the caller keeps its own pages.
struct Kit {
    timer: Timer,
    source: Page,
    destination: PagePair,
}

/// Kits that are not in use, in parts: the timer of a call that was given up comes back before the pages.
struct Kits {
    timers: rt::Vec<Timer>,
    pages: rt::Vec<(Page, PagePair)>,
}

impl Kits {
    fn new(count: usize) -> Result<Self> {
        Ok(Self {
            timers: rt::Vec::from_fn(count, |_| Timer::new())?,
            pages: rt::Vec::from_fn(count, |_| {
                Ok::<_, rt::AllocError>((Page::new()?, PagePair::new()?))
            })?,
        })
    }
}

/// How a call ended.
pub(super) enum Outcome<T> {
    /// Well.
    Done(T),
    /// With a result that does not fit, or an error that may mean that.
    DoesNotFit,
    /// With data that is not what it should be, or an error that may mean that.
    Corrupt,
    /// The driver is in trouble.
    Trouble,
    /// The driver was not asked.
    NotAsked,
}

/// A driver.
pub(super) struct Driver {
    pool: AcompPool,
    format: StreamFormat,
    figures: rt::Arc<Figures>,
    back_off: BackOff,
    /// `None` for a driver that computes on the CPU.
    kits: Option<SpinLock<Kits>>,
    /// Results in a row that did not fit.
    refusals: rt::atomic::AtomicU32,
    since: Instant<Monotonic>,
}

/// Why a driver cannot be used.
#[derive(Clone, Copy, Debug)]
pub(super) enum OpenFailure {
    /// The kernel has none of that name, or cannot give it.
    Absent(Error),
    /// It is of no known format.
    UnknownFormat,
    /// It does not decompress the test block, or not what it compressed itself.
    SelfTest,
}

impl Driver {
    /// Finds a driver, which may load modules, and tries it. `figures` gives the counters for a driver of that name.
    pub(super) fn open(
        candidate: Candidate<'_>,
        figures: impl FnOnce(&str) -> Result<rt::Arc<Figures>>,
    ) -> core::result::Result<Self, OpenFailure> {
        let absent = OpenFailure::Absent;
        if let Candidate::AcceleratedLz4(acceleration) = candidate {
            lz4_fast::register(acceleration).map_err(absent)?;
            let name = CString::try_from_fmt(fmt!("{}{}", ACCELERATED_LZ4, acceleration))
                .map_err(absent)?;
            let acomp = Acomp::new(&name, Implementations::Synchronous).map_err(absent)?;
            let figures = figures(name.to_str().unwrap_or("?")).map_err(absent)?;
            return Self::with_acomp(acomp, StreamFormat::Lz4, figures).map_err(absent);
        }
        let (name, which) = match candidate {
            Candidate::AcceleratedLz4(_) => return Err(OpenFailure::UnknownFormat),
            Candidate::Any(name) => (name, Implementations::Any),
            Candidate::Software(name) => (name, Implementations::Synchronous),
        };
        let name = CString::try_from_fmt(fmt!("{}", name)).map_err(absent)?;
        let acomp = Acomp::new(&name, which).map_err(absent)?;
        let driver_name = acomp.driver_name().to_str().unwrap_or("?");
        let format = StreamFormat::of_algorithm(driver_name)
            .or_else(|| StreamFormat::of_algorithm(acomp.algorithm_name().to_str().ok()?))
            .ok_or(OpenFailure::UnknownFormat)?;
        let figures = figures(driver_name).map_err(absent)?;
        Self::with_acomp(acomp, format, figures).map_err(absent)
    }

    fn with_acomp(acomp: Acomp, format: StreamFormat, figures: rt::Arc<Figures>) -> Result<Self> {
        let (requests, kits) = if acomp.is_async() {
            let kits = Kits::new(ASYNCHRONOUS_REQUESTS)?;
            (ASYNCHRONOUS_REQUESTS, Some(spin_lock!(kits)?))
        } else {
            (SYNCHRONOUS_REQUESTS, None)
        };
        Ok(Self {
            pool: AcompPool::new(acomp, requests)?,
            format,
            figures,
            back_off: BackOff::default(),
            kits,
            refusals: rt::atomic::AtomicU32::new(0),
            since: Instant::now(),
        })
    }

    pub(super) fn format(&self) -> StreamFormat {
        self.format
    }

    pub(super) fn name(&self) -> &str {
        self.figures.name()
    }

    pub(super) fn algorithm(&self) -> &str {
        self.pool.acomp().algorithm_name().to_str().unwrap_or("?")
    }

    pub(super) fn is_async(&self) -> bool {
        self.kits.is_some()
    }

    pub(super) fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Whether the driver is being left alone.
    pub(super) fn is_backing_off(&self) -> bool {
        self.back_off.is_open() || self.is_used_up()
    }

    /// Whether the driver has all its pages and answers none of the calls.
    fn is_used_up(&self) -> bool {
        self.is_async() && self.pool.abandoned() >= ASYNCHRONOUS_REQUESTS
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(0) / 1000
    }

    /// Whether so many results in a row did not fit that the driver may be to blame. Only every so often: it may be the data all the
    /// time.
    pub(super) fn is_suspicious(&self) -> bool {
        let refusals = self.refusals.load(rt::atomic::Ordering::Relaxed);
        self.is_async() && refusals != 0 && refusals % SUSPICIOUS == 0
    }

    /// The driver was wrong; `surely` if the data cannot be to blame.
    pub(super) fn failed(&self, surely: bool) {
        if self.is_async() && self.back_off.failed(self.now_us(), surely) {
            rt::warn!(
                "{} is in trouble: software compresses and decompresses instead; it is tried again from time to time",
                self.name()
            );
        }
    }

    /// The driver was right.
    pub(super) fn succeeded(&self) {
        self.refusals.store(0, rt::atomic::Ordering::Relaxed);
        if self.is_async() && self.back_off.succeeded(self.now_us()) {
            rt::info!("{} works again", self.name());
        }
    }

    fn may_be_asked(&self) -> bool {
        !self.is_async() || self.back_off.admits(self.now_us())
    }

    fn take_kit(&self) -> Option<Kit> {
        let mut kits = self.kits.as_ref()?.lock();
        if kits.pages.is_empty() {
            while let Some(pages) = self.pool.reclaim() {
                // There is room for all of them.
                let _ = kits.pages.push_within_capacity(pages);
            }
        }
        let (source, destination) = kits.pages.pop()?;
        // There are as many timers, and they come back sooner.
        let timer = kits.timers.pop()?;
        Some(Kit {
            timer,
            source,
            destination,
        })
    }

    fn give_timer(&self, timer: Timer) {
        if let Some(kits) = &self.kits {
            // There is room for all of them.
            let _ = kits.lock().timers.push_within_capacity(timer);
        }
    }

    fn give_kit(&self, kit: Kit) {
        if let Some(kits) = &self.kits {
            let mut kits = kits.lock();
            let _ = kits.timers.push_within_capacity(kit.timer);
            let _ = kits
                .pages
                .push_within_capacity((kit.source, kit.destination));
        }
    }

    /// Compresses `src` into `dst`.
    pub(super) async fn compress(
        &self,
        src: Page,
        dst: PagePair,
    ) -> (Page, PagePair, Outcome<usize>) {
        if !self.may_be_asked() {
            return (src, dst, Outcome::NotAsked);
        }
        let limit = self.format.fragment_bytes_max();
        let start = self.now_us();
        if !self.is_async() {
            self.figures.calls.increment();
            let (src, dst, result) = self.pool.compress(src, dst, limit).await;
            let outcome = self.compressed(start, result);
            return (src, dst, outcome);
        }
        let mut dst = dst;
        let Some(kit) = self.take_kit() else {
            return (src, dst, Outcome::NotAsked);
        };
        let Kit {
            mut timer,
            mut source,
            destination,
        } = kit;
        source.copy_from_slice(&src[..]);
        self.figures.calls.increment();
        self.figures.outstanding.increment();
        let call = self.pool.compress(source, destination, limit);
        let answer = within(call, timer.sleep(PATIENCE_MS)).await;
        self.figures.outstanding.decrement();
        let Some((source, destination, result)) = answer else {
            self.give_timer(timer);
            self.stalled();
            return (src, dst, Outcome::Trouble);
        };
        let result = result.and_then(|bytes| {
            match (dst.get_mut(..bytes), destination.get(..bytes)) {
                (Some(to), Some(from)) => to.copy_from_slice(from),
                _ => return Err(EOVERFLOW),
            }
            Ok(bytes)
        });
        self.give_kit(Kit {
            timer,
            source,
            destination,
        });
        let outcome = self.compressed(start, result);
        (src, dst, outcome)
    }

    fn compressed(&self, start_us: u64, result: Result<usize>) -> Outcome<usize> {
        self.figures
            .answered(self.now_us().saturating_sub(start_us));
        match result {
            Ok(bytes) if bytes > 0 && bytes <= self.format.fragment_bytes_max() => {
                self.figures.input_bytes.add(PAGE_BYTES as u64);
                self.figures.payload_bytes.add(bytes as u64);
                self.succeeded();
                Outcome::Done(bytes)
            }
            Ok(_) => {
                self.figures.errors.increment();
                self.failed(false);
                Outcome::Trouble
            }
            // Drivers report a result that does not fit in five ways; what means trouble for certain is the rest.
            Err(error) if [EINVAL, ENOSPC, E2BIG, EOVERFLOW, EIO].contains(&error) => {
                self.figures.incompressible.increment();
                self.refusals.fetch_add(1, rt::atomic::Ordering::Relaxed);
                Outcome::DoesNotFit
            }
            Err(_) => {
                self.figures.errors.increment();
                self.failed(true);
                Outcome::Trouble
            }
        }
    }

    fn stalled(&self) {
        self.figures.stalls.increment();
        self.figures.errors.increment();
        self.failed(true);
        if self.pool.abandoned() == ASYNCHRONOUS_REQUESTS {
            rt::warn!(
                "{} has not answered {} calls, as many as it can have: it is not asked before it does",
                self.name(),
                ASYNCHRONOUS_REQUESTS
            );
        }
    }

    /// Decompresses `src[range]` into `dst`, which has a whole block then.
    pub(super) async fn decompress(
        &self,
        src: Page,
        range: Range<usize>,
        dst: Page,
    ) -> (Page, Page, Outcome<()>) {
        if !self.may_be_asked() {
            return (src, dst, Outcome::NotAsked);
        }
        let start = self.now_us();
        if !self.is_async() {
            self.figures.decompress_calls.increment();
            let (src, dst, result) = self.pool.decompress(src, range, dst).await;
            let outcome = self.decompressed(start, result);
            return (src, dst, outcome);
        }
        let mut dst = dst;
        let bytes = range.len();
        let Some(mut kit) = self.take_kit() else {
            return (src, dst, Outcome::NotAsked);
        };
        match (kit.source.get_mut(..bytes), src.get(range)) {
            (Some(to), Some(from)) => to.copy_from_slice(from),
            _ => {
                self.give_kit(kit);
                return (src, dst, Outcome::Corrupt);
            }
        }
        let Kit {
            mut timer,
            source,
            destination,
        } = kit;
        self.figures.decompress_calls.increment();
        self.figures.outstanding.increment();
        let call = self.pool.decompress(source, 0..bytes, destination);
        let answer = within(call, timer.sleep(PATIENCE_MS)).await;
        self.figures.outstanding.decrement();
        let Some((source, destination, result)) = answer else {
            self.give_timer(timer);
            self.stalled();
            return (src, dst, Outcome::Trouble);
        };
        if let Some(plain) = destination.get(..PAGE_BYTES) {
            dst.copy_from_slice(plain);
        }
        self.give_kit(Kit {
            timer,
            source,
            destination,
        });
        let outcome = self.decompressed(start, result);
        (src, dst, outcome)
    }

    fn decompressed(&self, start_us: u64, result: Result<usize>) -> Outcome<()> {
        self.figures
            .answered(self.now_us().saturating_sub(start_us));
        match result {
            Ok(PAGE_BYTES) => {
                self.succeeded();
                Outcome::Done(())
            }
            Err(ENODEV) => {
                self.figures.decompress_errors.increment();
                self.failed(true);
                Outcome::Trouble
            }
            _ => {
                self.figures.decompress_errors.increment();
                Outcome::Corrupt
            }
        }
    }

    /// Whether the driver decompresses the block that every driver has to, and what it makes of it itself. A driver that does not
    /// answer is left alone for a while, and not refused.
    pub(super) async fn passes_self_test(&self) -> Result<bool> {
        let mut plain = Page::new()?;
        self_test::fill_plain(&mut plain);
        let mut fragment = Page::new()?;
        let vector = self_test::vector(self.format);
        fragment
            .get_mut(..vector.len())
            .ok_or(EINVAL)?
            .copy_from_slice(vector);
        let (fragment, back, outcome) = self
            .decompress(fragment, 0..vector.len(), Page::new()?)
            .await;
        match outcome {
            Outcome::Done(()) if back[..] == plain[..] => {}
            Outcome::Trouble | Outcome::NotAsked => return Ok(true),
            _ => return Ok(false),
        }
        self.reads_itself(plain, fragment, back).await
    }

    /// Whether what the driver makes of `plain` becomes `plain` again.
    async fn reads_itself(&self, plain: Page, mut fragment: Page, back: Page) -> Result<bool> {
        let (plain, packed, outcome) = self.compress(plain, PagePair::new()?).await;
        let bytes = match outcome {
            Outcome::Done(bytes) => bytes,
            Outcome::Trouble | Outcome::NotAsked => return Ok(true),
            Outcome::DoesNotFit | Outcome::Corrupt => return Ok(false),
        };
        match (fragment.get_mut(..bytes), packed.get(..bytes)) {
            (Some(to), Some(from)) => to.copy_from_slice(from),
            _ => return Ok(false),
        }
        let (_, back, outcome) = self.decompress(fragment, 0..bytes, back).await;
        Ok(match outcome {
            Outcome::Done(()) => back[..] == plain[..],
            Outcome::Trouble | Outcome::NotAsked => true,
            Outcome::DoesNotFit | Outcome::Corrupt => false,
        })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let abandoned = self.pool.abandoned();
        if abandoned > 0 {
            rt::warn!(
                "{} goes without having answered {} calls: their memory, and this module, stay until it does",
                self.name(),
                abandoned
            );
        }
    }
}

/// What `call` returns, unless `patience` is over before. Then the call is dropped.
async fn within<C: Future>(call: C, patience: impl Future<Output = ()>) -> Option<C::Output> {
    let mut call = pin!(call);
    let mut patience = pin!(patience);
    poll_fn(move |cx| {
        if let Poll::Ready(output) = call.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        patience.as_mut().poll(cx).map(|()| None)
    })
    .await
}
