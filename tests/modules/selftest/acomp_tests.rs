// SPDX-License-Identifier: GPL-2.0

//! Compression requests.
//!
//! Messages: `round_trips <tasks> <rounds>` compresses and decompresses `tasks * rounds` different blocks and says how each
//! came out; `abandon <n>` drops the futures of `n` requests as soon as they are started.

use core::fmt::Write;
use core::future::Future;
use core::pin::pin;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::task::{Context, Waker};

use kernel::prelude::*;

use crate::check::Shared;
use crate::kapi::acomp_pool::AcompPool;
use crate::kapi::device_mapper::{Args, ResultText};
use crate::kapi::executor::Executor;
use crate::rt::{Arc, Page, PagePair};

/// Where a fragment lies in a compressed block, and how long it may be.
const FRAGMENT_OFFSET: usize = 36;
const FRAGMENT_BYTES_MAX: usize = 4059;

/// What a round trip needs. Taken out while the compressor has it.
pub(crate) struct Buffers {
    source: Option<Page>,
    compressed: Option<PagePair>,
    fragment: Option<Page>,
    output: Option<Page>,
}

impl Buffers {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            source: Some(Page::new()?),
            compressed: Some(PagePair::new()?),
            fragment: Some(Page::new()?),
            output: Some(Page::new()?),
        })
    }

    /// What came out of the last round trip.
    pub(crate) fn output(&self) -> &[u8] {
        self.output.as_ref().map_or(&[], |page| &page[..])
    }
}

/// How a round trip ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The same bytes came back.
    Same,
    CompressError(Error),
    DecompressError(Error),
    /// Not 4096 bytes came back, or other ones.
    Different,
}

#[derive(Default)]
struct Tally {
    same: AtomicU64,
    compress_errors: AtomicU64,
    decompress_errors: AtomicU64,
    different: AtomicU64,
    /// Any of the errors, positive.
    error: AtomicU64,
}

impl Tally {
    fn add(&self, outcome: Outcome) {
        let (counter, error) = match outcome {
            Outcome::Same => (&self.same, None),
            Outcome::CompressError(e) => (&self.compress_errors, Some(e)),
            Outcome::DecompressError(e) => (&self.decompress_errors, Some(e)),
            Outcome::Different => (&self.different, None),
        };
        counter.fetch_add(1, Relaxed);
        if let Some(error) = error {
            self.error
                .store(u64::from(error.to_errno().unsigned_abs()), Relaxed);
        }
    }
}

/// Fills `block` with bytes that depend on `seed` alone. 0: zeros. Every eighth block does not compress.
fn fill(block: &mut [u8], seed: u64) {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for (i, byte) in block.iter_mut().enumerate() {
        x = x
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        let noise = (x >> 56) as u8;
        *byte = match (seed, seed % 8) {
            (0, _) => 0,
            (_, 7) => noise,
            // A slow counter with noise in a part that differs from block to block.
            _ if (i as u64 / 64) % 8 < seed % 8 => noise & 0x0f,
            _ => (i / 16) as u8,
        };
    }
}

/// One block there and back.
pub(crate) async fn round_trip(shared: &Shared, buffers: &mut Buffers, seed: u64) -> Outcome {
    let (Some(mut source), Some(pair)) = (buffers.source.take(), buffers.compressed.take()) else {
        return Outcome::Different;
    };
    fill(&mut source[..], seed);
    let (source, pair, compressed) = shared.pool.compress(source, pair, FRAGMENT_BYTES_MAX).await;
    let outcome = match compressed {
        Err(e) => Outcome::CompressError(e),
        Ok(bytes) => way_back(shared.back(), buffers, &pair, bytes, &source).await,
    };
    buffers.source = Some(source);
    buffers.compressed = Some(pair);
    outcome
}

async fn way_back(
    pool: &AcompPool,
    buffers: &mut Buffers,
    compressed: &PagePair,
    bytes: usize,
    expected: &Page,
) -> Outcome {
    let range = FRAGMENT_OFFSET..FRAGMENT_OFFSET.saturating_add(bytes);
    let (Some(mut fragment), Some(output)) = (buffers.fragment.take(), buffers.output.take())
    else {
        return Outcome::Different;
    };
    if let (Some(to), Some(from)) = (fragment.get_mut(range.clone()), compressed.get(..bytes)) {
        to.copy_from_slice(from);
    }
    let (fragment, output, result) = pool.decompress(fragment, range, output).await;
    let outcome = match result {
        Err(e) => Outcome::DecompressError(e),
        Ok(4096) if output[..] == expected[..] => Outcome::Same,
        Ok(_) => Outcome::Different,
    };
    buffers.fragment = Some(fragment);
    buffers.output = Some(output);
    outcome
}

/// See the [module documentation](self).
pub(crate) fn round_trips(
    executor: &Executor,
    shared: &Arc<Shared>,
    args: &Args<'_>,
    out: &mut ResultText<'_>,
) -> Result {
    let tasks: u64 = args.parse(1).ok_or(EINVAL)?;
    let rounds: u64 = args.parse(2).ok_or(EINVAL)?;
    let tally = Arc::new(Tally::default())?;
    for task in 0..tasks {
        let (shared, tally) = (shared.clone(), tally.clone());
        let mut buffers = Buffers::new()?;
        executor.spawn(async move {
            for round in 0..rounds {
                let seed = task.wrapping_mul(rounds).wrapping_add(round);
                tally.add(round_trip(&shared, &mut buffers, seed).await);
            }
        })?;
    }
    executor.drain();
    write!(
        out,
        "same {} compress_errors {} decompress_errors {} different {} error {}",
        tally.same.load(Relaxed),
        tally.compress_errors.load(Relaxed),
        tally.decompress_errors.load(Relaxed),
        tally.different.load(Relaxed),
        tally.error.load(Relaxed),
    )?;
    Ok(())
}

/// See the [module documentation](self).
pub(crate) fn abandon(pool: &AcompPool, args: &Args<'_>, out: &mut ResultText<'_>) -> Result {
    let count: u64 = args.parse(1).ok_or(EINVAL)?;
    let mut cx = Context::from_waker(Waker::noop());
    let (mut pending, mut ready) = (0, 0);
    for seed in 0..count {
        let (mut source, pair) = (Page::new()?, PagePair::new()?);
        fill(&mut source[..], seed);
        let future = pin!(pool.compress(source, pair, FRAGMENT_BYTES_MAX));
        let counter = if future.poll(&mut cx).is_ready() {
            &mut ready
        } else {
            &mut pending
        };
        *counter = u64::wrapping_add(*counter, 1);
    }
    write!(out, "pending {pending} ready {ready}")?;
    Ok(())
}
