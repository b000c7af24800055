// SPDX-License-Identifier: GPL-2.0

//! Compressors that take their time and can be made to fail.
//!
//! LZ4, deflate and zstd are real.

use std::cell::RefCell;
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::disk::Latency;
use super::executor::Clock;
use super::rng::Rng;
use crate::engine::env::{Codec, CodecError, Compressed};
use crate::engine::format::StreamFormat;
use crate::rt::{Page, PagePair};

thread_local! {
    /// Made once: they are large.
    static ZSTD: RefCell<(zstd_safe::CCtx<'static>, zstd_safe::DCtx<'static>)> =
        RefCell::new((zstd_safe::CCtx::create(), zstd_safe::DCtx::create()));
}

/// How the compressor behaves.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// How long a (de)compression takes.
    pub latency: Latency,
    /// How many compressions in a thousand the driver fails.
    pub compress_failures_permille: u32,
    /// How many compressions in a thousand are called incompressible whatever the data is.
    pub incompressible_permille: u32,
    /// How many decompressions in a thousand the driver fails.
    pub decompress_failures_permille: u32,
}

impl Behaviour {
    /// Quick and without failures.
    pub const GOOD: Self = Self {
        latency: Latency::FAST,
        compress_failures_permille: 0,
        incompressible_permille: 0,
        decompress_failures_permille: 0,
    };
}

struct State {
    rng: Rng,
    behaviour: Behaviour,
    format: StreamFormat,
    compressions: u64,
    decompressions: u64,
    failures: u64,
}

/// A simulated device, at first one for LZ4; clones are the same one.
#[derive(Clone)]
pub struct SimCodec {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

impl SimCodec {
    /// A codec that behaves well.
    pub fn new(clock: Clock, rng: Rng) -> Self {
        Self {
            clock,
            state: Arc::new(Mutex::new(State {
                rng,
                behaviour: Behaviour::GOOD,
                format: StreamFormat::Lz4,
                compressions: 0,
                decompressions: 0,
                failures: 0,
            })),
        }
    }

    /// Makes it behave otherwise from now on.
    pub fn set_behaviour(&self, behaviour: Behaviour) {
        self.state.lock().expect("no panic").behaviour = behaviour;
    }

    /// Makes it compress to another format from now on.
    pub fn set_format(&self, format: StreamFormat) {
        self.state.lock().expect("no panic").format = format;
    }

    /// Compressions, decompressions and failures of both so far.
    pub fn counts(&self) -> (u64, u64, u64) {
        let state = self.state.lock().expect("no panic");
        (state.compressions, state.decompressions, state.failures)
    }

    /// Decides a compression: what to, how long it takes, how it fails, and a source of noise.
    fn compression(&self) -> (StreamFormat, u64, Option<CodecError>, Rng) {
        let state = &mut *self.state.lock().expect("no panic");
        state.compressions += 1;
        let behaviour = state.behaviour;
        let fault = if state.rng.permille(behaviour.compress_failures_permille) {
            state.failures += 1;
            Some(CodecError::Failed)
        } else if state.rng.permille(behaviour.incompressible_permille) {
            Some(CodecError::Incompressible)
        } else {
            None
        };
        (
            state.format,
            behaviour.latency.pick(&mut state.rng),
            fault,
            state.rng.fork(),
        )
    }

    fn decompression(&self) -> (u64, Option<CodecError>) {
        let state = &mut *self.state.lock().expect("no panic");
        state.decompressions += 1;
        let behaviour = state.behaviour;
        let fault = state.rng.permille(behaviour.decompress_failures_permille);
        state.failures += u64::from(fault);
        let delay = behaviour.latency.pick(&mut state.rng);
        (delay, fault.then_some(CodecError::Failed))
    }
}

impl Codec for SimCodec {
    fn compress(
        &self,
        src: Page,
        mut dst: PagePair,
    ) -> impl Future<Output = (Page, PagePair, Result<Compressed, CodecError>)> + Send {
        let (format, delay, fault, mut noise) = self.compression();
        let clock = self.clock.clone();
        async move {
            clock.sleep(delay).await;
            // A driver may leave anything behind its output.
            noise.fill(&mut dst[..]);
            let result = match fault {
                Some(error) => Err(error),
                None => match encode(format, &src[..], &mut dst[..]) {
                    Some(bytes) if bytes <= format.fragment_bytes_max() => {
                        Ok(Compressed { format, bytes })
                    }
                    _ => Err(CodecError::Incompressible),
                },
            };
            (src, dst, result)
        }
    }

    fn decompress(
        &self,
        format: StreamFormat,
        src: Page,
        range: Range<usize>,
        mut dst: Page,
    ) -> impl Future<Output = (Page, Page, Result<(), CodecError>)> + Send {
        let (delay, fault) = self.decompression();
        let clock = self.clock.clone();
        async move {
            clock.sleep(delay).await;
            let result = match (fault, src.get(range)) {
                (Some(error), _) => Err(error),
                (None, None) => Err(CodecError::Corrupt),
                (None, Some(fragment)) => match decode(format, fragment, &mut dst[..]) {
                    Some(4096) => Ok(()),
                    _ => Err(CodecError::Corrupt),
                },
            };
            (src, dst, result)
        }
    }
}

/// Compresses `src` into `dst`. `None` if it does not fit, or if nothing here makes the format.
pub fn encode(format: StreamFormat, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    match format {
        StreamFormat::Lz4 => lz4_flex::block::compress_into(src, dst).ok(),
        StreamFormat::Deflate => {
            let mut deflate = flate2::Compress::new(flate2::Compression::fast(), false);
            let status = deflate.compress(src, dst, flate2::FlushCompress::Finish);
            (status.ok()? == flate2::Status::StreamEnd).then(|| deflate.total_out() as usize)
        }
        StreamFormat::Zstd => ZSTD.with_borrow_mut(|(zstd, _)| zstd.compress(dst, src, 1).ok()),
    }
}

/// Decompresses `src` into `dst`. `None` if it is not of the format.
pub fn decode(format: StreamFormat, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    match format {
        StreamFormat::Lz4 => lz4_flex::block::decompress_into(src, dst).ok(),
        StreamFormat::Deflate => {
            let mut inflate = flate2::Decompress::new(false);
            let status = inflate.decompress(src, dst, flate2::FlushDecompress::Finish);
            (status.ok()? == flate2::Status::StreamEnd).then(|| inflate.total_out() as usize)
        }
        StreamFormat::Zstd => ZSTD.with_borrow_mut(|(_, zstd)| zstd.decompress(dst, src).ok()),
    }
}
